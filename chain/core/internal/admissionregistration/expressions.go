package admissionregistration

import (
	"regexp"
	"strings"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/matchconditions"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// maxMatchConditions is how many conditions a webhook or a policy may have.
const maxMatchConditions = 64

// plainCompiler knows no variables and so keeps nothing between expressions. Its eight environments take milliseconds to make, hence one
// for the process, made when it is first needed.
var plainCompiler = sync.OnceValue(func() plugincel.Compiler {
	return plugincel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
})

// celName is CEL's IDENT, but for the reserved words.
var celName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// celReserved are the words that the CEL language definition reserves.
var celReserved = sets.New("as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
	"namespace", "null", "package", "return", "true", "var", "void", "while")

// expressions checks the expressions of one object.
type expressions struct {
	// stored are the expressions of the object in etcd: they may use what only stored expressions may.
	stored sets.Set[string]
	// hasParams says that there is a variable params.
	hasParams bool
	// compiler is nil until an expression needs it, and remembers the variables of the object.
	compiler  plugincel.Compiler
	variables bool
}

// newExpressions makes the checker of a policy with the given variables.
func newExpressions(stored sets.Set[string], params *admissionv1.ParamKind, variables []admissionv1.Variable) *expressions {
	return &expressions{stored: stored, hasParams: params != nil, variables: len(variables) > 0}
}

// get is the compiler of expressions that may use variables.
func (e *expressions) get() plugincel.Compiler {
	if e.compiler != nil {
		return e.compiler
	}
	e.compiler = plainCompiler()
	if e.variables {
		if composited, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())); err == nil {
			e.compiler = composited
		}
	}
	return e.compiler
}

func (e *expressions) mode(expression string) environment.Type {
	if e.stored.Has(expression) {
		return environment.StoredExpressions
	}
	return environment.NewExpressions
}

// check compiles an expression which may use the variables that were declared before.
func (e *expressions) check(expression plugincel.ExpressionAccessor, options plugincel.OptionalVariableDeclarations, path *field.Path) field.ErrorList {
	options.HasParams = e.hasParams
	result := e.get().CompileCELExpression(expression, options, e.mode(expression.GetExpression()))
	return celErrors(expression, result.Error, path)
}

// declare compiles a variable and makes it known to the expressions that follow.
func (e *expressions) declare(v admissionv1.Variable, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if strings.TrimSpace(v.Name) == "" {
		errs = append(errs, field.Required(path.Child("name"), "a variable needs a name"))
	} else if !celName.MatchString(v.Name) || celReserved.Has(v.Name) {
		errs = append(errs, field.Invalid(path.Child("name"), v.Name, "must be a CEL identifier"))
	}
	at := path.Child("expression")
	if strings.TrimSpace(v.Expression) == "" {
		return append(errs, field.Required(at, "a variable needs an expression"))
	}
	composited, ok := e.get().(*plugincel.CompositedCompiler)
	if !ok {
		return append(errs, field.InternalError(at, errNoVariables))
	}
	variable := &validating.Variable{Name: v.Name, Expression: v.Expression}
	options := plugincel.OptionalVariableDeclarations{HasParams: e.hasParams, HasAuthorizer: true}
	result := composited.CompileAndStoreVariable(variable, options, e.mode(v.Expression))
	return append(errs, celErrors(variable, result.Error, at)...)
}

// matchConditions checks the conditions of a webhook or a policy. They cannot use variables.
func (e *expressions) matchConditions(conditions []admissionv1.MatchCondition, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(conditions) > maxMatchConditions {
		errs = append(errs, field.TooMany(path, len(conditions), maxMatchConditions))
	}
	names := sets.New[string]()
	for i, c := range conditions {
		at := path.Index(i)
		expression := strings.TrimSpace(c.Expression)
		if expression == "" {
			errs = append(errs, field.Required(at.Child("expression"), ""))
		} else {
			condition := &matchconditions.MatchCondition{Name: c.Name, Expression: expression}
			options := plugincel.OptionalVariableDeclarations{HasParams: e.hasParams, HasAuthorizer: true}
			result := plainCompiler().CompileCELExpression(condition, options, e.mode(c.Expression))
			errs = append(errs, celErrors(condition, result.Error, at.Child("expression"))...)
		}
		if c.Name == "" {
			errs = append(errs, field.Required(at.Child("name"), ""))
			continue
		}
		for _, msg := range validation.IsQualifiedName(c.Name) {
			errs = append(errs, field.Invalid(at.Child("name"), c.Name, msg))
		}
		if names.Has(c.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		names.Insert(c.Name)
	}
	return errs
}

func celErrors(expression plugincel.ExpressionAccessor, err *apiservercel.Error, path *field.Path) field.ErrorList {
	switch {
	case err == nil:
		return nil
	case err.Type == apiservercel.ErrorTypeRequired:
		return field.ErrorList{field.Required(path, err.Detail)}
	case err.Type == apiservercel.ErrorTypeInvalid:
		return field.ErrorList{field.Invalid(path, expression.GetExpression(), err.Detail)}
	}
	return field.ErrorList{field.InternalError(path, err)}
}
