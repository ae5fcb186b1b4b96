"""Code on the way to a question uses no operation whose last bit depends on the processor or on a library."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "fedclust"
# What these do comes after the last question, or is no study.
ELSEWHERE = ("app/analysis/", "app/audit/", "cli/", "datasets/", "privacy/attacks/", "report/", "testing/")
ROUNDED_BY_LIBRARIES = {
    *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "logaddexp", "power", "float_power", "pow", "cbrt"),
    *("sin", "cos", "tan", "sinh", "cosh", "tanh", "arcsin", "arccos", "arctan", "arctan2", "asin", "acos", "atan"),
    *("atan2", "hypot", "dist", "erf", "erfc", "gamma", "lgamma", "interp"),
}
PRODUCTS = {
    "dot",
    "vdot",
    "inner",
    "matmul",
    "tensordot",
    "einsum",
    "cov",
    "corrcoef",
    "convolve",
    "correlate",
    "polyfit",
}
TIES = {"argsort", "argpartition"}  # which of equal numbers comes first depends on the instruction set
DRAWS = {  # from uniform numbers by logarithms and exponentials of the C library
    *("normal", "standard_normal", "exponential", "gamma", "beta", "dirichlet", "laplace", "poisson", "standard_t"),
    *("multivariate_normal", "binomial", "multinomial", "chisquare"),
}
LIBRARIES = {"scipy", "sklearn", "torch"}
CHECKS = {"sklearn.base", "sklearn.utils.validation"}  # of arguments

WHOLE_NUMBERS = "a product of whole numbers, which no order of adding rounds"
NETWORKS = "neural networks train at one site by torch; what a question says of them comes from the sites' answers"
AT_THE_GATE = "decides with a tolerance what may be asked or may leave; no question depends on it"
WORDS = "for a sentence that a person reads"
RANDOM = "noise at a site, random by nature"
NO_ROUNDING = "adds and compares only"
REVIEWED = {  # by module: what it may use, and why no question depends on a processor
    "algorithms/autoencoders/autoencoder.py": {"*": NETWORKS},
    "algorithms/autoencoders/private_gradients.py": {"*": WHOLE_NUMBERS},
    "algorithms/dec.py": {"*": NETWORKS},
    "algorithms/fedcref/association.py": {"scipy.sparse.csgraph": NO_ROUNDING},
    "algorithms/fedcref/cluster_memory.py": {"*": NETWORKS},
    "algorithms/fedcref/fedcref_site.py": {"*": NETWORKS},
    "algorithms/fedcref/local_clusters.py": {"*": NETWORKS},
    "algorithms/fedcref/refining.py": {"*": NETWORKS},
    "algorithms/cmeans/cell_comparisons.py": dict.fromkeys(
        ("apart @ sets", "joint @ sets", "joint.sum(axis=0) @ sets", "rows.sum(axis=(0, 1)) @ sets"), WHOLE_NUMBERS
    ),
    "algorithms/cmeans/nested_cells.py": {"cells.astype(np.int64) @ cells.T.astype(np.int64)": WHOLE_NUMBERS},
    "algorithms/method_contracts.py": {"math.log": AT_THE_GATE},
    "algorithms/shared/cell_sums.py": {"known @ known.T": WHOLE_NUMBERS},
    "algorithms/summary_clustering/neighbor_graph.py": {
        "scipy.sparse": NO_ROUNDING,
        "scipy.spatial": "finds the nodes that vote on the label of a row, after the last question",
    },
    "algorithms/mufc.py": {"max(levels, 2) ** (digits + 1)": WHOLE_NUMBERS},
    "core/ring.py": {"Fraction(2) ** (-unit)": "a fraction"},
    "kernels/_coder_twin.py": {"*": NETWORKS},
    "kernels/bounded_sums.py": {"some @ some.T": WHOLE_NUMBERS},
    "privacy/accountant.py": {
        "scipy.optimize": "Brent's method, from additions, products and square roots of Python's",
        "math.log10": WORDS,
        "10.0 ** math.floor(math.log10(0.1 / rows))": WORDS,
    },
    "privacy/discrete_noise.py": {"math.log2": RANDOM, "np.exp": RANDOM},
    "privacy/row_noise.py": {"stream.laplace(0.0, 1.0, rows.shape)": RANDOM},
    "questions/choice_of_k/choice_questions.py": {"known @ known.T": WHOLE_NUMBERS},
    "questions/choice_of_k/choice_contracts.py": {"np.abs(seen.axes).T @ ask.reach": AT_THE_GATE},
    "questions/choice_of_k/rows_by_cells.py": {"*": "for attacks on sums that were opened"},
    "questions/choice_of_k/whole_table_questions.py": {"signs @ signs.T": WHOLE_NUMBERS},
    "questions/feature_selection.py": {"there.astype(np.int64) @ there.T.astype(np.int64)": WHOLE_NUMBERS},
    "questions/question_contracts.py": {"math.log2": AT_THE_GATE},
    "questions/label_agreement.py": {"scipy.optimize": NO_ROUNDING},
    "questions/pca.py": {"known @ known.T": WHOLE_NUMBERS},
    "site/point_checks.py": {"*": AT_THE_GATE},
}


def modules():
    found = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
    return {name: path for name, path in found.items() if not name.startswith(ELSEWHERE)}


def uses(tree):
    """What a module uses of all this, as it is written there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [name.name for name in node.names]
            yield from (name for name in names if name.partition(".")[0] in LIBRARIES and name not in CHECKS)
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
            yield ast.unparse(node)
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Pow):
            yield from () if is_exact_power(node) else [ast.unparse(node)]
        elif isinstance(node, ast.Attribute) and is_library(node.value):
            if node.attr in ROUNDED_BY_LIBRARIES | PRODUCTS or ast.unparse(node.value) == "np.linalg":
                yield ast.unparse(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            stable = any(ast.unparse(own) == "kind='stable'" for own in node.keywords)
            if node.func.attr in DRAWS | {"dot"} or (node.func.attr in TIES and not stable):
                yield ast.unparse(node)


def is_library(node):
    return ast.unparse(node) in {"np", "np.linalg", "math", "numpy", "numpy.linalg"}


def is_exact_power(node):
    """A square, a whole power of a constant, or a power of two with an exponent that is named."""
    one, other = (node.target, node.value) if isinstance(node, ast.AugAssign) else (node.left, node.right)
    if isinstance(other, ast.Constant):
        return other.value == 2 or (isinstance(other.value, int) and isinstance(one, ast.Constant))
    return is_power_of_two(one)


def is_power_of_two(node):
    return isinstance(node, ast.Constant) and node.value in {0.5, 2, 4}


@pytest.mark.parametrize("name", modules())
def test_no_number_on_the_way_to_a_question_depends_on_the_processor(name):
    allowed = REVIEWED.get(name, {})
    found = set(uses(ast.parse(modules()[name].read_text(encoding="utf-8"))))
    assert not found or "*" in allowed or found <= set(allowed), sorted(found - set(allowed))


def test_every_reviewed_use_is_still_there():
    for name, allowed in REVIEWED.items():
        found = set(uses(ast.parse(modules()[name].read_text(encoding="utf-8"))))
        assert found, name
        assert set(allowed) in ({"*"}, found), name


@pytest.mark.parametrize(
    "code",
    [
        *("a @ b", "a @= b", "a.dot(b)", "np.linalg.norm(x)", "np.linalg.eigh", "np.einsum('ij->i', x)", "np.exp(x)"),
        *(
            "math.log(2)",
            "x ** 0.5",
            "10.0 ** x",
            "x ** 3",
            "x **= m",
            "2 ** 0.25",
            "np.argsort(x)",
            "x.argpartition(3)",
        ),
        *("rng.normal(size=3)", "from scipy.linalg import svd", "import torch", "elementary = np.log1p"),
    ],
)
def test_such_an_operation_is_found(code):
    assert list(uses(ast.parse(code)))


@pytest.mark.parametrize("code", ["x ** 2", "2.0 ** -30", "2 ** n", "np.argsort(x, kind='stable')", "rng.uniform()"])
def test_an_exact_operation_is_none_of_them(code):
    assert not list(uses(ast.parse(code)))
