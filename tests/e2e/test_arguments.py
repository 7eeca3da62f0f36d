"""Arity, syntax, ranges and their order: spec blob 2 and 4, cases 15 to 27."""
import pytest

from harness import texts
from harness.pattern import P, crc32c
from harness.resp import RespError

NOT_NUMBERS = ["-1", "0x1", "1a", "", str(1 << 64), "+1", " 1", "1 ", "1.0", "1e3", "0" * 20 + "1", b"\xd9\xa1", b"1\x00",
               "99999999999999999999"]


@pytest.mark.parametrize("words", [0, 1, 2])
def test_B015_get_with_less_than_a_triple(bound, words):
    assert texts.is_arity(bound.connection.call("BLOB.RDMA_GET", "k", *["1"] * words), "blob.rdma_get")


@pytest.mark.parametrize("words", [1, 2, 3])
def test_B015_set_with_less_than_length_and_triple(bound, words):
    assert texts.is_arity(bound.connection.call("BLOB.RDMA_SET", "k", *["1"] * words), "blob.rdma_set")


@pytest.mark.parametrize("words", [4, 5, 7, 100])
def test_B016_words_not_a_multiple_of_three(bound, words):
    assert bound.connection.call("BLOB.RDMA_GET", "k", *["1"] * words) == texts.TRIPLES
    assert bound.connection.call("BLOB.RDMA_SET", "k", "10", *["1"] * words) == texts.TRIPLES


def test_B017_syntax_precedes_binding(server):
    connection = server.connect()
    assert connection.call("BLOB.TCP_SET", "k", P) == "OK"
    assert connection.call("BLOB.RDMA_GET", "k", 1, 2, 3, 4) == texts.TRIPLES
    assert connection.call("BLOB.RDMA_GET", "k", "x", 2, 3) == texts.BAD_RKEY
    assert connection.call("BLOB.RDMA_SET", "k", "x", 1, 2, 3) == texts.BAD_LEN
    assert connection.call("BLOB.RDMA_SET", "k", (8 << 20) + 1, 1, 2, 3) == texts.TOO_LARGE


def test_B018_unbound_get(server):
    connection = server.connect()
    assert connection.call("BLOB.TCP_SET", "k", P) == "OK"
    for key in ("k", "missing"):
        assert connection.call("BLOB.RDMA_GET", key, 1, 0, 4096) == texts.NOT_BOUND
    assert connection.call("BLOB.RDMA_SET", "new", 10, 1, 0, 10) == texts.NOT_BOUND
    assert connection.call("EXISTS", "new") == 0


def test_B019_256_triples_and_one_more(make_peer, any_lane):
    peer = make_peer(any_lane)
    peer.store("k", P)
    region = peer.region(257 * 16)
    triples = [region.triple(16 * i, 16) for i in range(257)]
    assert peer.get("k", *triples) == texts.TOO_MANY
    assert peer.set("n", 10, *triples) == texts.TOO_MANY
    assert region.untouched()
    assert peer.get("k", *triples[:256]) == [4096, crc32c(P)]
    assert region.memory[:4096] == P and region.untouched(4096)
    assert peer.set("n", 4096, *triples[:256], crc=crc32c(P)) == "OK"
    assert peer.connection.call("BLOB.TCP_GET", "n") == P


@pytest.mark.parametrize("bad", NOT_NUMBERS)
def test_B020_bad_rkey(bound, bad):
    region = bound.region(16)
    _, addr, length = region.triple()
    assert bound.get("k", (bad, addr, length)) == texts.BAD_RKEY
    assert bound.get("k", region.triple(), (bad, addr, length)) == texts.BAD_RKEY
    assert bound.set("k", 16, (bad, addr, length)) == texts.BAD_RKEY


@pytest.mark.parametrize("bad", NOT_NUMBERS)
def test_B021_bad_address(bound, bad):
    region = bound.region(16)
    key, _, length = region.triple()
    assert bound.get("k", (key, bad, length)) == texts.BAD_ADDR
    assert bound.set("k", 16, (key, bad, length)) == texts.BAD_ADDR


def test_B021_address_zero_is_an_address(make_peer, lane):
    peer = make_peer(lane)
    peer.store("k", P)
    region = peer.region(4096)
    assert region.triple()[1] == 0
    assert peer.get("k", region.triple()) == [4096, crc32c(P)]
    assert peer.get("missing", ("00000000000000000001", "0", "1")) is None


@pytest.mark.parametrize("bad", ["0", "00"] + NOT_NUMBERS)
def test_B022_bad_region_length(bound, bad):
    key, addr, _ = bound.region(16).triple()
    assert bound.get("k", (key, addr, bad)) == texts.BAD_REGION_LEN
    assert bound.set("k", 16, (key, addr, bad)) == texts.BAD_REGION_LEN


@pytest.mark.parametrize("addr,length", [((1 << 64) - 1, 2), (1 << 63, (1 << 63) + 1), (2, (1 << 64) - 1),
                                         ((1 << 64) - 4096, 4097)])
def test_B022_address_plus_length_wraps(bound, addr, length):
    bound.connection.ok("BLOB.TCP_SET", "k", P)
    key = bound.region(16).triple()[0]
    assert bound.get("k", (key, addr, length)) == texts.BAD_REGION_LEN
    assert bound.set("n", 16, (key, addr, length)) == texts.BAD_REGION_LEN
    assert bound.connection.call("EXISTS", "n") == 0


def test_B022_lengths_sum_saturating(bound):
    """Two ranges whose lengths add up to more than 64 bits cover any object; their own fabric errors decide then."""
    bound.connection.ok("BLOB.TCP_SET", "k", P)
    region = bound.region(16)
    key, addr, _ = region.triple()
    reply = bound.get("k", (key, addr, (1 << 63) + 7), (key, addr, (1 << 63) + 7))
    assert texts.is_write_failed(reply), reply
    assert region.untouched()
    assert bound.fetch("k", 4096) == P


@pytest.mark.parametrize("bad,expected", [("0", texts.EMPTY_OBJECT), ("000", texts.EMPTY_OBJECT), ("abc", texts.BAD_LEN),
                                          ("", texts.BAD_LEN), ("-5", texts.BAD_LEN), (str(1 << 64), texts.BAD_LEN)])
def test_B023_bad_total_length(bound, bad, expected):
    assert bound.set("k", bad, bound.region(16).triple()) == expected
    assert bound.connection.call("EXISTS", "k") == 0


@pytest.mark.parametrize("length", [(8 << 20) + 1, 1 << 40, (1 << 64) - 1])
def test_B024_total_length_above_the_limit(server, bound, length):
    before = server.info()
    region = bound.region(16)
    assert bound.set("k", length, region.triple(), region.triple()) == texts.TOO_LARGE
    after = server.info()
    for name in ("rdma_reads", "rdma_read_bytes", "rdma_read_errors"):
        assert after[name] == before[name]
    assert bound.connection.call("EXISTS", "k") == 0


def test_B025_total_length_at_the_limit(server, make_peer, any_lane):
    peer = make_peer(any_lane)
    content = P + P[::-1]
    with server.config(largeobj__max_object_size="8192"):
        region = peer.region(content=content)
        assert peer.set("k", 8192, region.triple()) == "OK"
        assert peer.set("n", 8193, region.triple()) == texts.TOO_LARGE
    assert peer.fetch("k", 8192) == content


def test_B026_crc_word_after_a_triple(bound):
    region = bound.region(content=P)
    words = ["BLOB.RDMA_SET", "k", 4096, *region.triple()]
    assert bound.connection.call(*words, "CRC", crc32c(P)) == texts.TRIPLES
    assert bound.connection.call(*words, "CRC", crc32c(P), 1) == texts.BAD_RKEY
    assert bound.connection.call("EXISTS", "k") == 0


@pytest.mark.parametrize("bad", ["4294967296", "abc", "", "-1", "0xE3069283", str(1 << 64)])
def test_B026_bad_crc(bound, bad):
    assert bound.set("k", 4096, bound.region(content=P).triple(), crc=bad) == texts.BAD_CRC
    assert bound.connection.call("EXISTS", "k") == 0


@pytest.mark.parametrize("word", ["crc", "CRC", "cRc"])
def test_B027_crc_keyword_in_any_case(bound, word):
    region = bound.region(content=P)
    assert bound.connection.call("BLOB.RDMA_SET", "k", 4096, word, crc32c(P), *region.triple()) == "OK"
    assert bound.connection.call("BLOB.TCP_GET", "k") == P


def test_order_of_checks(server, bound):
    """Spec blob 2 item 7: coverage (SET) before the type, the key before coverage (GET)."""
    bound.connection.ok("SET", "string", "x")
    bound.connection.ok("BLOB.TCP_SET", "k", P)
    region = bound.region(16)
    assert bound.set("string", 17, region.triple()) == texts.COVERAGE
    assert bound.get("missing", region.triple()) is None
    assert bound.get("string", region.triple()) == texts.WRONGTYPE
    assert bound.get("k", region.triple()) == texts.COVERAGE
    assert isinstance(bound.set("string", 16, region.triple()), RespError)
    assert region.untouched()
