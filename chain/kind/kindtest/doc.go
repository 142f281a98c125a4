// Package kindtest tests declarations of kinds, built-in ones and your own.
//
// [Causes] makes the errors of a validation function comparable:
//
//	got := kindtest.Causes(Recipes().Validate(t.Context(), recipe))
//	if want := []string{"spec.minutes Invalid"}; !slices.Equal(got, want) { … }
//
// [Fuzz] is the body of a fuzz test that looks for objects on which a kind's functions panic or
// contradict each other:
//
//	func FuzzRecipe(f *testing.F) {
//		kindtest.Fuzz(f, Recipes(), `{"spec":{"dish":"Soup"}}`)
//	}
package kindtest
