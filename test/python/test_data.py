"""lockstep.data: stores and tokenizers give what the files hold, and say what is wrong."""

import os
import pickle
import threading

import numpy as np
import pytest

import lockstep
from lockstep import data


@pytest.fixture
def store(corpus):
    return data.open(corpus + "_train")


def words_of(store):
    return np.fromfile(store.files[0].path, dtype=np.uint16).astype(np.int32)


def test_conversations_become_texts(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    (tmp_path / "chat_template.jinja").write_text(
        "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}{% if tools %}+{{ tools | length }}{% endif %}")
    chat, asked = data.ChatTemplate(tmp_path), [{"role": "user", "content": "a\u00e9\""}]
    assert chat.render(asked) == "<s><user>a\u00e9\"<assistant>"
    assert chat.render(asked, answer=False, tools=[{}]) == "<s><user>a\u00e9\"+1"
    for wrong in (5, [5], [{"role": {1}}]):
        with pytest.raises(lockstep.ArgumentError, match="messages: .*expected a list of dicts"):
            chat.render(wrong)
    with pytest.raises(lockstep.LockstepError, match="role"):
        chat.render([{}])
    chat.close()
    with pytest.raises(lockstep.ClosedError):
        chat.render(asked)
    with pytest.raises(lockstep.LockstepError):
        data.ChatTemplate(tmp_path / "none")


def test_a_store_reads_what_the_file_holds(store):
    there = words_of(store)
    assert len(store) == len(there) == store.files[0].tokens
    for part in (slice(0, 5), slice(-7, None), slice(3, 3), slice(20, 5, -3), slice(5, 40, 4)):
        assert store[part].dtype == np.int32
        np.testing.assert_array_equal(store[part], there[part])
    assert store[3] == there[3] and store[-1] == there[-1]
    assert store.documents == 1
    assert store.mask(0, 8).all()


def test_places_outside_are_errors(store):
    for outside in (lambda: store[len(store)], lambda: store.mask(0, len(store) + 1),
                    lambda: store.mask(-1, 2), lambda: store.samples(16)[10**9]):
        with pytest.raises(IndexError):
            outside()
    with pytest.raises(lockstep.DataError, match="tokens"):
        store.samples(10**9)
    with pytest.raises(lockstep.LockstepError, match="nowhere"):
        data.open("nowhere")


def test_samples_are_a_permutation_of_the_store(store):
    there, plain = words_of(store), store.samples(16)
    inputs, targets = plain[2]
    np.testing.assert_array_equal(inputs, there[32:48])
    np.testing.assert_array_equal(targets, there[33:49])
    shuffled = store.samples(16, seed=5)
    assert len(shuffled) == len(plain)
    def keys(samples):
        return sorted((x.tobytes(), y.tobytes()) for x, y in samples)
    assert keys(shuffled) == keys(plain)
    assert any((shuffled[i][0] != plain[i][0]).any() for i in range(len(plain)))
    with pytest.raises(IndexError):
        shuffled.at(-1)
    second = [shuffled.at(len(plain) + i) for i in range(len(plain))]
    assert keys(second) == keys(plain)
    assert any((second[i][0] != shuffled[i][0]).any() for i in range(len(plain)))


def test_parts_of_workers_are_the_whole(store):
    samples = store.samples(16, seed=1)
    whole = [x.tobytes() for x, _ in samples]
    parts = [[x.tobytes() for x, _ in samples.part(i, 3)] for i in range(3)]
    assert [parts[i % 3][i // 3] for i in range(len(whole))] == whole
    with pytest.raises(ValueError, match="part 3 of 3"):
        samples.part(3, 3)


def test_threads_and_forks_may_read(store):
    samples, found = store.samples(16, seed=1), {}

    def read(part):
        found[part] = [x.tobytes() for x, _ in samples.part(part, 4)]

    threads = [threading.Thread(target=read, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ends, begins = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(begins, samples[7][0].tobytes())
        finally:  # an error must not go on as a second pytest
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(ends, 4096) == samples[7][0].tobytes() == found[3][1]
    os.close(ends)
    os.close(begins)


class Taken:
    """A lock that another thread has, which is gone in a fork."""

    def __enter__(self):
        raise AssertionError("it is waited for")

    def __exit__(self, *_):
        pass


def test_a_fork_encodes_while_another_thread_does(store):
    tokenizer = store.tokenizer()
    whole, tokenizer._encoder.lock = tokenizer._encoder.lock, Taken()
    child = os.fork()
    if child == 0:
        same = False
        try:
            same = tokenizer.encode("1 and").tolist() == list(b"1 and")
            tokenizer.close()
        finally:  # an error must not go on as a second pytest
            os._exit(not same)
    assert os.waitpid(child, 0)[1] == 0
    tokenizer._encoder.lock = whole
    assert tokenizer.encode("2").tolist() == [50]


def test_names_have_all_bytes_and_no_nul(corpus, tmp_path):
    name = os.fsencode(tmp_path) + b"/\xff_train"
    for end in (b".bin", b".idx"):
        os.link(corpus.encode() + b"_train" + end, name + end)
    store = data.open(os.fsdecode(name))
    assert len(store) == len(data.open(store.spec)) > 0
    assert len(data.open(store.files[0].path)) == len(store)
    for odd in (corpus + "_train\0", corpus + "_train\ud800"):
        for use in (data.open, data.Tokenizer, data.ChatTemplate):
            with pytest.raises(lockstep.ArgumentError, match="expected a path, which has whole"):
                use(odd)
    tokenizer = data.Tokenizer("byte")
    assert tokenizer.id("<|endoftext|>\0") is None
    for odd in (3, "\ud800"):
        with pytest.raises(lockstep.ArgumentError, match="^token: .*expected a text"):
            tokenizer.id(odd)


def test_numbers_of_samples_are_whole(store):
    for call, name in ((lambda: store.samples(2.5), "sequence"), (lambda: store.samples(0), "sequence"),
                       (lambda: store.samples(2**63 - 1), "sequence"),
                       (lambda: store.samples(16, seed=1.5), "seed"),
                       (lambda: store.samples(16, seed=-1), "seed")):
        with pytest.raises(lockstep.ArgumentError, match=f"^{name} is .*: expected a whole number"):
            call()
    for use in (lambda: store["a"], lambda: store.samples(16)[1.5], lambda: store.samples(16).at(1.5),
                lambda: store.mask(0.5, 2)):
        with pytest.raises(TypeError):
            use()


def test_pickled_samples_are_the_same(store):
    samples = store.samples(16, seed=1).part(1, 2)
    again = pickle.loads(pickle.dumps(samples))
    np.testing.assert_array_equal(again[3][0], samples[3][0])


def test_a_closed_store_is_an_error_not_a_crash(corpus):
    with data.open(corpus + "_valid") as store:
        samples = store.samples(16)
    for use in (lambda: len(store), lambda: store[0], lambda: samples[0], lambda: store.files):
        with pytest.raises(lockstep.ClosedError, match="store was closed"):
            use()
    store.close()


@pytest.mark.parametrize("text", ["", "plain", "naïve 名前 🙂", "a\0b"])
def test_decoding_undoes_encoding(corpus, text):
    for tokenizer in (data.Tokenizer("byte"), data.open(corpus + "_train").tokenizer()):
        ids = tokenizer.encode(text)
        assert ids.dtype == np.int32 and ids.tolist() == list(text.encode())
        assert tokenizer.decode(ids) == text
        assert tokenizer.decode_bytes(ids.tolist()) == text.encode()
    assert tokenizer.vocabulary == 257 and tokenizer.eod == 256 and tokenizer.bos is None


def test_ids_that_are_none_are_errors():
    tokenizer = data.Tokenizer("byte")
    for odd in ("a\ud800", 3, [1, 2], None):
        with pytest.raises(lockstep.ArgumentError, match="^text: .*expected a text of whole char"):
            tokenizer.encode(odd)
    assert tokenizer.encode(memoryview(b"ab")).tolist() == [97, 98]
    for ids in ([257], [-1], [2**40], [0.5], [[1]], "ab"):
        with pytest.raises(lockstep.ArgumentError, match="ids: expected"):
            tokenizer.decode(ids)
    tokenizer.close()
    for use in (lambda: tokenizer.encode("a"), lambda: tokenizer.decode([1])):
        with pytest.raises(lockstep.ClosedError):
            use()


def test_prepare_says_what_it_wrote(tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "2+2=", "completion": "4"}\n' * 4)
    wrote = data.prepare([tmp_path / "pairs.jsonl"], tmp_path / "out", records="pairs", validation=0)
    store = data.open(tmp_path / "out_train")
    assert wrote.train == data.Split(4, len(store), 8) and wrote.valid.tokens == 0
    assert store.mask(0, 6).tolist() == [False] * 4 + [True] * 2
    assert store.files[0].masked and store.files[0].counted == 8


def test_prepare_refuses_and_leaves_nothing(tmp_path):
    (tmp_path / "bad.jsonl").write_text("{}\n")
    for options, error in (({"validation": 1.5}, "validation"), ({"records": "x"}, "records"),
                           ({"tokenizer": "none/such"}, "none/such"), ({}, "bad.jsonl:1")):
        with pytest.raises(lockstep.LockstepError, match=error):
            data.prepare(tmp_path / "bad.jsonl", tmp_path / "out", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["bad.jsonl"]


def test_torch_reads_a_store_in_three_lines(store):
    torch = pytest.importorskip("torch")

    class Tokens(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(store.samples(16, seed=1))

    inputs, targets = next(iter(torch.utils.data.DataLoader(Tokens(), batch_size=4)))
    assert inputs.shape == targets.shape == (4, 16) and inputs.dtype == torch.int32
