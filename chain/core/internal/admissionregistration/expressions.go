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

	"github.com/kinproc/kinproc/chain/core/internal/rules"
)

// maxMatchConditions is the maximum number of match conditions of a webhook or a policy.
const maxMatchConditions = 64

// plainCompiler returns a compiler without variables, which keeps no state between expressions.
// Building its eight environments takes milliseconds, so the process builds it once, on first use.
var plainCompiler = sync.OnceValue(func() plugincel.Compiler {
	return plugincel.NewCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
})

// celName matches CEL's IDENT and, unlike IDENT, the reserved words.
var celName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// celReserved holds the words reserved by the CEL language definition.
var celReserved = sets.New("as", "break", "const", "continue", "else", "false", "for", "function",
	"if", "import", "in", "let", "loop", "namespace", "null", "package", "return", "true",
	"var", "void", "while")

// expressions checks the expressions of one object.
type expressions struct {
	// stored holds the expressions of the object in etcd. They may use features that are allowed in
	// stored expressions only.
	stored sets.Set[string]
	// hasParams is set if the variable params is declared.
	hasParams bool
	// compiler is nil until an expression needs it. It remembers the object's variables.
	compiler  plugincel.Compiler
	variables bool
}

// newExpressions returns the checker for a policy with the given variables.
func newExpressions(
	stored sets.Set[string], params *admissionv1.ParamKind, variables []admissionv1.Variable,
) *expressions {
	return &expressions{stored: stored, hasParams: params != nil, variables: len(variables) > 0}
}

// get returns the compiler of expressions that may use variables.
func (e *expressions) get() plugincel.Compiler {
	if e.compiler != nil {
		return e.compiler
	}
	e.compiler = plainCompiler()
	if e.variables {
		if composited, err := plugincel.NewCompositedCompiler(environment.MustBaseEnvSet(
			environment.DefaultCompatibilityVersion())); err == nil {
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

// check compiles an expression, which may use the variables declared so far.
func (e *expressions) check(
	expression plugincel.ExpressionAccessor, options plugincel.OptionalVariableDeclarations,
	path *field.Path,
) field.ErrorList {
	options.HasParams = e.hasParams
	result := e.get().CompileCELExpression(expression, options, e.mode(expression.GetExpression()))
	return celErrors(expression, result.Error, path)
}

// declare compiles a variable and declares it for the expressions that follow.
func (e *expressions) declare(v admissionv1.Variable, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if strings.TrimSpace(v.Name) == "" {
		errs = append(errs, field.Required(path.Child("name"), "must not be blank"))
	} else if !celName.MatchString(v.Name) || celReserved.Has(v.Name) {
		errs = append(errs, field.Invalid(path.Child("name"), v.Name, "must be a CEL identifier"))
	}
	at := path.Child("expression")
	if strings.TrimSpace(v.Expression) == "" {
		return append(errs, field.Required(at, "must not be blank"))
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

// matchConditions validates the match conditions of a webhook or a policy. Match conditions cannot
// use variables.
func (e *expressions) matchConditions(
	conditions []admissionv1.MatchCondition, path *field.Path,
) field.ErrorList {
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
		errs = append(errs, rules.Invalid(at.Child("name"), c.Name,
			validation.IsQualifiedName(c.Name))...)
		if names.Has(c.Name) {
			errs = append(errs, field.Duplicate(at.Child("name"), c.Name))
		}
		names.Insert(c.Name)
	}
	return errs
}

func celErrors(
	expression plugincel.ExpressionAccessor, err *apiservercel.Error, path *field.Path,
) field.ErrorList {
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
