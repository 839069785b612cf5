"""weir.Session: ranks as threads, gradients in whatever has a buffer."""

import array
import ctypes
import logging
import threading

import pytest
from conftest import emulated_library

import weir


def run(ranks, work, **options):
    """work(session, rank) on `ranks` threads; what each returned, or the first error."""
    answers, errors = [None] * ranks, []

    def one(rank):
        try:
            with weir.Session(
                rank, ranks, transport="inproc", rendezvous="python tests", timeout_s=20, **options
            ) as session:
                answers[rank] = work(session, rank)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return answers


def test_averages_any_buffer_of_floats():
    def work(session, rank):
        session.register("a", 4)
        session.register("b", (2, 3))
        session.register("nothing", 0)
        session.start()
        a = array.array("f", [rank, 10 * rank, 1, -1])
        b = memoryview(bytearray(24)).cast("f")
        b[5] = 6.0 * rank
        info = session.average([a, b, array.array("f")], loss=1.0)
        assert info.step == 0 and not info.trial and not info.lost
        assert session.plan == info.plan == "none:1:dense-ring"
        assert (info.codec, info.collective, info.cr) == ("none", "dense-ring", 1.0)
        assert session.transport == "inproc"
        assert session.allgather(bytes([rank, 7])) == [bytes([r, 7]) for r in range(3)]
        assert "plan: none:1:dense-ring" in session.dump()
        return list(a), list(b)

    for a, b in run(3, work, policy="fixed:none:1:dense-ring"):
        assert a == [1, 10, 1, -1]  # of 0, 1, 2
        assert b == [0, 0, 0, 0, 0, 6]


def test_numpy():
    numpy = pytest.importorskip("numpy")

    def work(session, rank):
        session.register("w", (3, 5))
        session.start()
        g = numpy.full((3, 5), rank, dtype=numpy.float32)
        session.average([g])
        assert (g == 0.5).all()
        # What is refused leaves no step open.
        wide = numpy.zeros((3, 10), dtype=numpy.float32)
        fixed = g.copy()
        fixed.flags.writeable = False  # as arrays of jax are
        dates = numpy.zeros((3, 5), "datetime64[s]")  # have no format, as bfloat16 of jax
        for wrong, words in (
            (numpy.zeros((3, 5)), "format 'd'"),
            (wide[:, ::2], "contiguous and writable"),
            (fixed, "contiguous and writable"),
            (dates, "no buffer format"),
        ):
            with pytest.raises(TypeError, match=words):
                session.average([wrong])
        with pytest.raises((TypeError, ValueError)):
            session.average([g], loss="low")
        session.average([g])
        assert (g == 0.5).all()

    run(2, work, policy="fixed:none:1:dense-ring", trial_budget=numpy.float64(0.04))


def test_sixteen_bits():
    numpy = pytest.importorskip("numpy")

    def work(session, rank):
        session.register("half", 3, "float16")
        session.register("bf16", (1, 3), dtype="bfloat16")
        session.register("w", 1)
        with pytest.raises(ValueError, match="float32, float16, bfloat16 are known"):
            session.register("no", 3, "float64")
        session.start()
        half = numpy.array([rank, 1 + rank / 1024, 65504], dtype=numpy.float16)
        # 1, of ranks 0 and 1 1 and 1 + 1/128, and 3; 1 + 1/256 is in the middle, and 1 is even.
        bf16 = array.array("H", [0x3F80, 0x3F80 + rank, 0x4040])
        w = array.array("f", [1 + rank / 1024])
        session.average([half, bf16, w])
        with pytest.raises(TypeError, match="3 elements of float16 .* 12 bytes of format 'f'"):
            session.average([numpy.zeros(3, dtype=numpy.float32), bf16, w])
        return half.tolist(), list(bf16), list(w)

    for answer in run(2, work, policy="fixed:none:1:dense-ring"):
        assert answer == ([0.5, 1, 65504], [0x3F80, 0x3F80, 0x4040], [1 + 1 / 2048])


def test_saves_and_goes_on():
    def first(session, rank):
        session.register("w", 8)
        session.start()
        g = array.array("f", [rank + i for i in range(8)])
        session.average([g])
        return session.save(), session.residual_digest

    def second(session, rank):
        session.register("w", 8)
        with pytest.raises(weir.WeirError, match="checksum"):
            session.load(saved[rank][0][:-1] + bytes([saved[rank][0][-1] ^ 1]))
        with pytest.raises(weir.WeirError, match="ends too soon"):
            session.load(saved[rank][0][:-1])
        session.load(saved[rank][0])
        session.start()
        assert session.residual_digest == saved[rank][1]
        session.rescale(2)
        assert session.residual_digest != saved[rank][1]
        assert session.begin().step == 1

    saved = run(2, first, policy="fixed:topk:0.25:ag")
    run(2, second, policy="fixed:topk:0.25:ag")


def test_not_finite_is_told():
    def work(session, rank):
        session.register("w", 2)
        session.start()
        g = array.array("f", [float("nan") if rank else 1.0, 1.0])
        assert session.average([g]).lost
        return list(g)

    assert run(2, work) == [[0, 0], [0, 0]]


def test_errors_are_exceptions_with_their_cause():
    for options, words in (
        ({"polisy": "weir"}, 'there is no option "polisy"'),
        ({"policy": "wier"}, "wier"),
        ({"timeout_s": -1}, "timeout_s is -1"),
        ({"overlap": "maybe"}, 'takes "true" or "false"'),
        ({"rank": 2, "world_size": 2}, "rank is 2"),
    ):
        with pytest.raises(weir.UsageError, match=words) as caught:
            weir.Session(**options)
        assert caught.value.status_name == "WEIR_E_INVALID"
        assert isinstance(caught.value, (weir.WeirError, ValueError))
    with pytest.raises(TypeError, match="secret is bytes; text is due"):
        weir.Session(secret=b"as hashlib digests are, and long enough")
    with pytest.raises(ValueError, match="secret has a zero character"):
        weir.Session(secret="long enough and then cut off\0by C")
    session = weir.Session()
    session.register("w", 1)
    with pytest.raises(weir.UsageError, match="not started"):
        session.begin()
    session.start()
    with pytest.raises(ValueError, match="1 gradients are due, not 0"):
        session.average([])
    session.close()
    session.close()
    with pytest.raises(RuntimeError, match="closed"):
        session.begin()
    with pytest.raises(IndexError):
        session.submit(1, 0)


def test_a_rank_that_does_not_come_is_named():
    with pytest.raises(weir.GroupLostError, match=r"rank 0: .*rank 1.*\(WEIR_E_TIMEOUT\)"):
        with weir.Session(
            0, 2, transport="inproc", rendezvous="nobody comes", timeout_s=0.2
        ) as session:
            session.start()


def test_lines_go_to_logging(caplog, monkeypatch):
    monkeypatch.delenv("WEIR_LOG", raising=False)
    with caplog.at_level(logging.INFO, logger="weir"):

        def work(session, rank):
            session.register("w", 2)
            session.start()

        run(2, work)
    assert any(
        r.name == "weir" and r.levelno == logging.INFO and "rank 1" in r.getMessage()
        for r in caplog.records
    )


class OnDevice:
    """An array as a device's libraries have them."""

    def __init__(self, buffer, typestr="<f4", shape=None, strides=None, constant=False):
        self.buffer = buffer
        self.__cuda_array_interface__ = {
            "shape": (len(buffer),) if shape is None else shape,
            "typestr": typestr,
            "data": (buffer.buffer_info()[0], constant),
            "strides": strides,
            "version": 3,
        }


@pytest.fixture
def emulated(monkeypatch):
    """tests/emulate's device, to which all memory of the process is its own."""
    library = ctypes.CDLL(emulated_library())
    library.weir_test_adopt()
    library.weir_test_stream.restype = ctypes.c_void_p
    monkeypatch.setenv("WEIR_CUDA_LIBRARY", emulated_library())
    return library


def test_a_device(emulated):
    class Stream:
        cuda_stream = emulated.weir_test_stream()

    def work(session, rank):
        session.register("a", (2, 2))
        session.register("b", 2, "bfloat16")
        session.register("nothing", 0)
        session.start()
        a = array.array("f", [rank, 10 * rank, 1, -1])
        b = array.array("H", [0x3F80, 0x4040])
        row = OnDevice(a, shape=(2, 2), strides=(8, 4))
        session.average([row, OnDevice(b, "<V2"), OnDevice(array.array("f", []))])
        session.average([a.buffer_info()[0], OnDevice(b, "<u2"), 0])
        with pytest.raises(TypeError, match="4 elements of float32 is due, not 2 of type '<u2'"):
            session.average([OnDevice(b, "<u2"), b, 0])
        return list(a), list(b)

    for told in run(2, work, policy="fixed:none:1:dense-ring", device=0, stream=Stream()):
        assert told == ([0.5, 5, 1, -1], [0x3F80, 0x4040])


@pytest.mark.parametrize(
    "device, lent, words",
    [
        (0, {"shape": (2, 2), "strides": (4, 8)}, "to be contiguous"),
        (0, {"constant": True}, "to be writable"),
        (0, {"typestr": "<f8"}, "4 of type '<f8'"),
        (-1, {}, "session's are in host memory, as it got no device="),
    ],
)
def test_arrays_on_devices_that_are_refused(emulated, device, lent, words):
    with weir.Session(device=device) as session:
        session.register("w", 4)
        session.start()
        session.begin()
        with pytest.raises(TypeError, match=words):
            session.submit(0, OnDevice(array.array("f", [1, 2, 3, 4]), **lent))


def test_tensors():
    torch = pytest.importorskip("torch")

    def work(session, rank):
        session.register("w", 4)
        session.register("half", 2, "bfloat16")
        session.start()
        w, half = torch.full((4,), float(rank)), torch.ones(2, dtype=torch.bfloat16)
        session.average([w, half])
        session.begin()
        for wrong, words in (
            (torch.zeros(2, 4)[:, ::2], "of float32 that lie apart"),
            (w.double(), "not 4 of float64"),
            (w[:2], "not 2 of float32"),
        ):
            with pytest.raises(TypeError, match=words):
                session.submit(0, wrong)
        return w.tolist()

    assert run(2, work, policy="fixed:none:1:dense-ring") == [[0.5] * 4] * 2


def test_a_tensor_of_another_device_is_refused(emulated):
    class Elsewhere:
        """A tensor that no machine without a device can have."""

        class device:
            type, index = "cuda", 1

        dtype = "torch.float32"

        def numel(self):
            return 4

        def is_contiguous(self):
            return True

        def data_ptr(self):
            raise AssertionError("asked for")

    for device, words in ((0, "are on device 0"), (-1, "are in host memory, as it got no device=")):
        with weir.Session(device=device) as session:
            session.register("w", 4)
            session.start()
            session.begin()
            with pytest.raises(TypeError, match=words):
                session.submit(0, Elsewhere())


def test_what_a_device_takes(monkeypatch):
    monkeypatch.setenv("WEIR_CUDA_LIBRARY", "/nowhere/libweir_cuda.so")
    with pytest.raises(weir.WeirError, match="/nowhere/.*nvcc.*WEIR_CUDA_LIBRARY") as caught:
        weir.Session(device=0)
    assert caught.value.status_name == "WEIR_E_UNSUPPORTED"
    with pytest.raises(TypeError, match="stream is 'mine'; the address of a cudaStream_t is due"):
        weir.Session(device=0, stream="mine")
    with pytest.raises(weir.UsageError, match="there is a stream, and no device"):
        weir.Session(stream=4096)
