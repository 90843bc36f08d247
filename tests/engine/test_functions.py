"""Loading functions: what is guessed, what the settings say, and what is refused."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from harness.call_engine import CallBench
from harness.functions import BOOL, FLOAT, FUNCTIONS, INT, TestFunction
from shaperouter_service.errors import StartupError
from shaperouter_service.functions.agreement import disagreement
from shaperouter_service.functions.loading import check_compiles, load_function
from shaperouter_service.routing.ladder import Ladder
from shaperouter_service.tensors.specs import Axis

# Of Keras, when it writes and reads weights.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def save(
    directory: Path,
    call: Callable[..., Mapping[str, Any]],
    inputs: Mapping[str, tuple[Sequence[int | None], tf.DType]],
    settings: str = "\n",
    **variables: Any,
) -> Path:
    """Saves a function whose settings are exactly these."""
    TestFunction(call=call, inputs=inputs, variables=variables).save(directory)
    (directory / "shaperouter.toml").write_text(settings, encoding="utf-8")
    return directory


def double(x: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"y": 2 * x}


def test_axes_are_guessed(tmp_path: Path) -> None:
    function = FUNCTIONS["many"]
    path = save(tmp_path, function.call, function.inputs)
    spec = load_function("many", path)[0].spec
    assert spec.batch == Axis(
        name="batch",
        inputs={"a": 0, "b": 0, "flag": 0},
        outputs={"sum": 0, "largest": 0, "positive": 0, "row": 0},
    )
    assert spec.axes == (
        Axis(
            name="axis1",
            inputs={"a": 1, "b": 1, "flag": 1},
            outputs={"sum": 1, "largest": 1, "positive": 1},
        ),
    )


def test_settings_name_axes_and_choose_ladders_and_padding(tmp_path: Path) -> None:
    """A product with 1 changes nothing, one with 0 does."""
    settings = """
        [axes.batch]
        ladder = [1, 3]
        [axes.words]
        inputs = { x = 1 }
        pad = { x = 1 }
        ladder = [10, 20]
    """
    path = save(
        tmp_path, lambda x: {"y": tf.reduce_prod(x, 1)}, {"x": ([None, None], FLOAT)}, settings
    )
    ladders = load_function("product", path)[0].ladders
    assert ladders.rows == Ladder((1, 3))
    assert [(axis.name, axis.ladder) for axis in ladders.axes] == [("words", Ladder((10, 20)))]


def test_an_empty_ladder_serves_an_axis_exactly(tmp_path: Path) -> None:
    path = save(tmp_path, double, {"x": ([None, None], FLOAT)}, "[axes.axis1]\nladder = []\n")
    assert load_function("double", path)[0].ladders.axes[0].ladder is None


def test_a_size_that_depends_on_an_axis_otherwise_makes_it_exact(tmp_path: Path) -> None:
    path = save(tmp_path, lambda x: {"y": x[:, ::2]}, {"x": ([None, None], FLOAT)})
    bench = CallBench({"every_second": path})
    assert bench.scheduler("every_second").model.ladders.axes[0].ladder is None
    inputs = {"x": np.arange(10, dtype=np.float32).reshape(2, 5)}
    result = bench.submit("every_second", inputs).wait()
    np.testing.assert_array_equal(result.outputs["y"], inputs["x"][:, ::2])
    bench.stop_compiling()


def test_a_function_that_takes_only_some_values_is_served_exactly(tmp_path: Path) -> None:
    """As one of serialized examples, which the texts of a trial seldom are."""
    schema = {"x": tf.io.FixedLenFeature([2], FLOAT, [1.0, 2.0])}
    path = save(
        tmp_path,
        lambda examples: {"outputs": tf.io.parse_example(examples, schema)["x"]},
        {"examples": ([None], tf.string)},
        "jit = false",
    )
    bench = CallBench({"rated": path})
    assert bench.scheduler("rated").model.ladders.rows is None
    result = bench.submit("rated", {"examples": np.array([b"", b""], object)}).wait()
    np.testing.assert_array_equal(result.outputs["outputs"], [[1.0, 2.0], [1.0, 2.0]])
    bench.stop_compiling()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("[axes.length]\ninputs = { x = 1, z = 1 }", "axes.length.inputs.z: the signature has no"),
        ("[axes.length]\ninputs = { x = 2 }", "axes.length.inputs.x: dimension 2 always has the"),
        ("[axes.length]\ninputs = { x = 3 }", "axes.length.inputs.x must be below 3"),
        ("[axes.length]\npad = { z = 1 }", "axes.length.pad.z: the signature has no such tensor"),
        *(
            (
                f"[axes.axis1]\npad = {{ x = {value} }}",
                "axes.axis1.pad.x must be a value of type FP32, got ",
            )
            for value in ('"zero"', "true", "[]")
        ),
        ("[axes.length]\nladder = [1]", "axes.length: no input has a dimension of unknown size"),
        ("[axes.batch]\nladder = [2, 1]", "axes.batch.ladder: rungs must be positive"),
        ("[axes.batch]\nladder = 3", "axes.batch.ladder must be of type list, got 3"),
        ("[axes.batch]\nrungs = [1]", "unknown key axes.batch.rungs"),
        ("jit = 1", "jit must be of type bool, got 1"),
        ("jit = ", "is not valid TOML"),
        ('signature = "other"', "has no signature 'other'; its signatures: serving_default"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path: Path, settings: str, message: str) -> None:
    path = save(tmp_path, double, {"x": ([None, None, 2], FLOAT)}, settings)
    with pytest.raises(StartupError, match=message.replace("[", r"\[")):
        load_function("double", path)


@pytest.mark.parametrize("value", ["-1", "256", "0.5", "true"])
def test_a_pad_that_the_data_type_does_not_have_is_refused(tmp_path: Path, value: str) -> None:
    inputs = {"x": ([None, None], tf.uint8)}
    path = save(tmp_path, double, inputs, f"[axes.axis1]\npad = {{ x = {value} }}")
    with pytest.raises(StartupError, match="must be a value of type UINT8, got"):
        load_function("double", path)


def test_python_code_is_refused(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        lambda x: {"y": tf.numpy_function(lambda value: value, [x], tf.float32)},
        {"x": ([None], FLOAT)},
    )
    with pytest.raises(StartupError, match="the operation PyFunc runs code"):
        load_function("python", path)


def _read_lines(x: tf.Tensor) -> dict[str, tf.Tensor]:
    lines = tf.data.TextLineDataset("/etc/hostname")
    return {"y": lines.reduce(x, lambda _, line: line[tf.newaxis])}


def _print_to_a_file(x: tf.Tensor) -> dict[str, tf.Tensor]:
    with tf.control_dependencies([tf.print(x, output_stream="file:///tmp/printed")]):
        return {"y": tf.identity(x)}


def _save(x: tf.Tensor) -> dict[str, tf.Tensor]:
    saved = tf.raw_ops.SaveV2(
        prefix="/tmp/saved", tensor_names=["x"], shape_and_slices=[""], tensors=[x]
    )
    with tf.control_dependencies([saved]):
        return {"y": tf.identity(x)}


def _debug(x: tf.Tensor) -> dict[str, tf.Tensor]:
    return {"y": tf.raw_ops.DebugIdentity(input=x, debug_urls=["file:///tmp/debug"])}


def _look_up(x: tf.Tensor) -> dict[str, tf.Tensor]:
    table = tf.raw_ops.HashTableV2(key_dtype=tf.string, value_dtype=tf.int64)
    filled = tf.raw_ops.InitializeTableFromTextFileV2(
        table_handle=table, filename="/etc/hostname", key_index=-2, value_index=-1
    )
    with tf.control_dependencies([filled]):
        return {"y": tf.identity(x)}


def _sample(x: tf.Tensor) -> dict[str, tf.Tensor]:
    sampled = tf.raw_ops.FixedUnigramCandidateSampler(
        true_classes=[[0]],
        num_true=1,
        num_sampled=1,
        unique=True,
        range_max=2,
        vocab_file="/etc/hostname",
    )
    with tf.control_dependencies([sampled.sampled_candidates]):
        return {"y": tf.identity(x)}


@pytest.mark.parametrize(
    ("call", "operation"),
    [
        (lambda x: {"y": tf.map_fn(tf.io.read_file, x)}, "ReadFile"),
        (_read_lines, r"\w+Dataset"),
        (_print_to_a_file, "PrintV2"),
        (_save, "SaveV2"),
        (_debug, "DebugIdentity"),
        (_look_up, "InitializeTableFromTextFileV2"),
        (_sample, "FixedUnigramCandidateSampler"),
    ],
    ids=["read", "dataset", "print", "save", "debug", "table", "sampler"],
)
def test_files_of_the_machine_are_refused(
    tmp_path: Path, call: Callable[..., Any], operation: str
) -> None:
    path = save(tmp_path, call, {"x": ([None], tf.string)})
    with pytest.raises(StartupError, match=f"the operation {operation} runs code, uses files"):
        load_function("reader", path)


def test_a_function_may_print(tmp_path: Path) -> None:
    def call(x: tf.Tensor) -> dict[str, tf.Tensor]:
        with tf.control_dependencies([tf.print("called")]):
            return {"y": x * 2.0}

    path = save(tmp_path, call, {"x": ([None], FLOAT)}, "jit = false")
    assert load_function("printing", path)


def test_a_custom_operation_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, double, {"x": ([None], FLOAT)})
    graph = path / "saved_model.pb"
    # Of the same length, so that the message stays whole.
    graph.write_bytes(graph.read_bytes().replace(b"Mul", b"Mux"))
    with pytest.raises(StartupError, match="Mux is a custom operation"):
        load_function("custom", path)


@pytest.mark.parametrize("name", ["saved_model.pb", "variables/variables.data-00000-of-00001"])
def test_a_truncated_file_is_refused(tmp_path: Path, name: str) -> None:
    function = FUNCTIONS["dense"]
    path = save(tmp_path, function.call, function.inputs, **function.variables)
    damaged = path / name
    damaged.write_bytes(damaged.read_bytes()[:-40])
    with pytest.raises(StartupError, match=r"is not a SavedModel|cannot be loaded"):
        load_function("dense", path)


@pytest.mark.parametrize(
    ("call", "inputs", "message"),
    [
        (
            lambda x: {"y": tf.math.real(tf.linalg.eig(x)[0])},
            {"x": ([None, 3, 3], FLOAT)},
            "no operation Eig",
        ),
        (lambda x: {"y": tf.strings.length(x)}, {"x": ([None], tf.string)}, "tensors of text"),
        (lambda x: {"y": tf.where(x)}, {"x": ([None], BOOL)}, "the size of an output depends"),
    ],
)
def test_what_xla_cannot_compile_is_refused_with_a_way_out(
    tmp_path: Path, call: Any, inputs: Any, message: str
) -> None:
    function, sizes = load_function("f", save(tmp_path, call, inputs))
    with pytest.raises(StartupError, match=f"{message}.*with jit = false in shaperouter.toml"):
        check_compiles(function, sizes, None)


def test_an_uncompiled_function_serves_texts(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        lambda text: {"length": tf.strings.length(text)},
        {"text": ([None], tf.string)},
        "jit = false",
    )
    bench = CallBench({"length": path})
    assert not bench.engine.model("length").call.compiled
    with bench.held("length"):
        calls = [
            bench.submit("length", {"text": np.array(texts, dtype=object)})
            for texts in ([b"one"], [b"", b"three"])
        ]
    assert [call.wait().outputs["length"].tolist() for call in calls] == [[3], [0, 5]]
    bench.stop_compiling()


def test_a_function_with_state_is_served_alone_and_uncompiled(tmp_path: Path) -> None:
    counter = tf.Variable(0.0)
    path = save(
        tmp_path,
        lambda x: {"y": x + counter.assign_add(1.0)},
        {"x": ([None], FLOAT)},
        counter=counter,
    )
    bench = CallBench({"counter": path})
    model = bench.scheduler("counter").model
    assert not model.compiled
    assert model.ladders.rows is None
    zero = {"x": np.zeros(1, np.float32)}
    with bench.held("counter"):
        calls = [bench.submit("counter", zero) for _ in range(3)]
    # Neither the trial nor the compilation has called it.
    assert [float(call.wait().outputs["y"][0]) for call in calls] == [1, 2, 3]
    bench.stop_compiling()


def test_random_numbers_are_served_alone(tmp_path: Path) -> None:
    path = save(
        tmp_path, lambda x: {"y": x + tf.random.normal(tf.shape(x))}, {"x": ([None], FLOAT)}
    )
    assert load_function("random", path)[0].ladders.rows is None


def test_ids_have_few_values_in_the_trial(tmp_path: Path) -> None:
    table = tf.Variable(tf.random.normal([2, 3]))
    path = save(
        tmp_path,
        lambda ids: {"y": tf.gather(table, ids)},
        {"ids": ([None, None], INT)},
        table=table,
    )
    assert load_function("table", path)[0].ladders.rows is not None


# --- Keras --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keras_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    inputs = keras.Input((None, 4), name="series")
    hidden = keras.layers.LSTM(3, return_sequences=True)(inputs)
    last = keras.layers.Dense(2, name="last")(hidden)
    path = tmp_path_factory.mktemp("keras") / "model.keras"
    keras.Model(inputs, last).save(path)
    return path


def test_a_keras_file_answers_as_keras_does(keras_file: Path) -> None:
    bench = CallBench({"series": keras_file})
    model = bench.scheduler("series").model
    assert [each.name for each in (*model.spec.inputs, *model.spec.outputs)] == ["series", "last"]
    inputs = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
    expected = {"last": keras.models.load_model(keras_file)(inputs).numpy()}
    found = bench.submit("series", {"series": inputs}).wait().outputs
    assert disagreement(expected, found) == ""
    bench.stop_compiling()


def test_a_sequential_keras_file_answers_as_keras_does(tmp_path: Path) -> None:
    path = tmp_path / "layers.keras"
    layers = [keras.Input((3,), name="features"), keras.layers.Dense(2, name="scores")]
    keras.Sequential(layers).save(path)
    function = load_function("layers", path)[0].function
    inputs = {"features": np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)}
    expected = {"scores": keras.models.load_model(path)(inputs["features"]).numpy()}
    found = {name: output.numpy() for name, output in function.call(inputs).items()}
    assert disagreement(expected, found) == ""


def test_a_lambda_layer_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "code.keras"
    layers = [keras.Input((3,)), keras.layers.Lambda(lambda x: 2 * x)]
    keras.Sequential(layers).save(path)
    with pytest.raises(StartupError, match=r"Keras cannot load the model: .*Lambda"):
        load_function("code", path)


def test_a_keras_file_with_nested_outputs_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "nested.keras"
    inputs = keras.Input((3,))
    keras.Model(inputs, {"scores": {"low": inputs, "high": 2 * inputs}}).save(path)
    with pytest.raises(StartupError, match=r"outputs are nested; export such a model as a SavedM"):
        load_function("nested", path)


def test_a_damaged_keras_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "damaged.keras"
    path.write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(StartupError, match=r"damaged\.keras: Keras cannot load the model"):
        load_function("damaged", path)
