// What comes out of the directory is read from only when it is authentic for this tenant and key
// (spec kv 4, 9.2, 9.3): every other pair ends with its outcome and nothing is posted.
#include "kvcache/client/testing/world.h"

#include <gtest/gtest.h>

namespace farlift::kv::client::testing {
namespace {

const Version kFirst(1, 5);

class KvDescriptor : public ::testing::Test {
 protected:
  KvDescriptor() : world_(options()) {
    a_ = world_.node().publish(key_of(1), pattern(100, 1), kFirst);
    b_ = world_.node().publish(key_of(2), pattern(100, 2), kFirst);
  }
  static WorldOptions options() { return {}; }

  void write(const Bytes& key, const std::optional<Bytes>& descriptor,
             const std::optional<Bytes>& tag) {
    const std::string names[] = {descriptor_name("t1", key), tag_name("t1", key)};
    const std::optional<Bytes>* halves[] = {&descriptor, &tag};
    for (int i = 0; i < 2; ++i) {
      if (*halves[i]) {
        world_.valkey->write(names[i], **halves[i]);
      } else {
        world_.valkey->evict(names[i]);
      }
    }
  }
  // In both modes, and as exists(); nothing may be posted.
  void expect_outcome(const Bytes& key, Outcome outcome) {
    const std::uint64_t before = world_.posts();
    EXPECT_EQ(world_.get(key, world_.dest(200), ReadMode::framed).outcome, outcome);
    EXPECT_EQ(world_.get(key, world_.dest(200), ReadMode::payload_only).outcome, outcome);
    EXPECT_EQ(world_.posts(), before);
  }
  static bool is_reject(Outcome outcome) {
    return outcome == Outcome::reject_sig || outcome == Outcome::reject_format ||
           outcome == Outcome::reject_nosig;
  }

  World world_;
  Stored a_;
  Stored b_;
};

TEST_F(KvDescriptor, K002_each_flipped_bit_of_the_descriptor_is_rejected) {
  for (std::size_t bit = 0; bit < a_.bytes.size() * 8; ++bit) {
    Bytes forged = a_.bytes;
    forged[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    write(key_of(1), forged, a_.tag);
    EXPECT_TRUE(is_reject(world_.get(key_of(1), world_.dest(200)).outcome)) << bit;
  }
  EXPECT_EQ(world_.posts(), 0u);
  EXPECT_EQ(world_.counter("rejects"), a_.bytes.size() * 8);
}

TEST_F(KvDescriptor, K003_each_flipped_bit_of_the_tag_is_rejected) {
  for (std::size_t bit = 0; bit < a_.tag.size() * 8; ++bit) {
    Bytes forged = a_.tag;
    forged[bit / 8] ^= static_cast<std::byte>(1u << bit % 8);
    write(key_of(1), a_.bytes, forged);
    EXPECT_EQ(world_.get(key_of(1), world_.dest(200)).outcome, Outcome::reject_sig) << bit;
  }
  EXPECT_EQ(world_.posts(), 0u);
}

TEST_F(KvDescriptor, K004_a_descriptor_without_tag_is_rejected) {
  write(key_of(1), a_.bytes, std::nullopt);
  expect_outcome(key_of(1), Outcome::reject_nosig);
}

TEST_F(KvDescriptor, K005_a_tag_without_descriptor_is_a_miss) {
  write(key_of(1), std::nullopt, a_.tag);
  expect_outcome(key_of(1), Outcome::miss);
}

TEST_F(KvDescriptor, K006_swapped_pairs_are_rejected) {
  write(key_of(1), b_.bytes, b_.tag);
  write(key_of(2), a_.bytes, a_.tag);
  expect_outcome(key_of(1), Outcome::reject_sig);
  expect_outcome(key_of(2), Outcome::reject_sig);
}

TEST_F(KvDescriptor, K007_swapped_halves_are_rejected) {
  write(key_of(1), b_.bytes, a_.tag);
  write(key_of(2), a_.bytes, b_.tag);
  expect_outcome(key_of(1), Outcome::reject_sig);
  expect_outcome(key_of(2), Outcome::reject_sig);
}

TEST_F(KvDescriptor, K008_a_pair_of_another_tenant_is_rejected_even_under_its_secret) {
  for (const std::uint8_t fill : {std::uint8_t{0x22}, std::uint8_t{0x11}}) {  // 0x11: ours
    const Keyring other = ring_of(1, fill);
    Descriptor descriptor = a_.descriptor;
    descriptor.key_hash = other.signing().key_hash(key_of(1));
    const Bytes bytes = encode_descriptor(descriptor);
    const Tag tag = make_tag(other.signing(), "t2", key_of(1), bytes);
    write(key_of(1), bytes, Bytes(tag.begin(), tag.end()));
    expect_outcome(key_of(1), Outcome::reject_sig);
  }
}

TEST_F(KvDescriptor, K009_wrong_shapes_are_refused) {
  const auto with = [&](std::size_t at, std::uint8_t value) {
    Bytes bytes = a_.bytes;
    bytes[at] = static_cast<std::byte>(value);
    return bytes;
  };
  Bytes short_one = a_.bytes;
  short_one.pop_back();
  Bytes long_one = a_.bytes;
  long_one.push_back(std::byte{0});
  const std::vector<Bytes> shapes = {short_one,   long_one,      Bytes(),    with(0, 'X'),
                                     with(4, 2),  with(5, 0x82), with(6, 2), with(7, 0),
                                     with(7, 17), Bytes(72),     Bytes(5000)};
  for (const Bytes& shape : shapes) {
    // Signed with the right key, so that the shape alone is what is wrong.
    const Tag tag = make_tag(world_.keys.signing(), "t1", key_of(1), shape);
    write(key_of(1), shape, Bytes(tag.begin(), tag.end()));
    expect_outcome(key_of(1), Outcome::reject_format);
  }
}

TEST_F(KvDescriptor, K010_an_unknown_key_id_is_rejected_until_it_is_added) {
  const Bytes secret(kSecretBytes, std::byte{0x33});
  ASSERT_TRUE(world_.keys.add(KeyId(9), secret).ok());
  world_.node().publish(key_of(3), pattern(100, 3), kFirst);
  expect_outcome(key_of(3), Outcome::reject_sig);
  ASSERT_TRUE(world_.client->add_key(KeyId(9), secret).ok());
  EXPECT_EQ(world_.get(key_of(3), world_.dest(200)).outcome, Outcome::ok);
}

TEST_F(KvDescriptor, K011_an_old_key_serves_until_it_is_dropped) {
  const Bytes secret(kSecretBytes, std::byte{0x33});
  ASSERT_TRUE(world_.keys.add(KeyId(9), secret).ok());
  ASSERT_TRUE(world_.client->add_key(KeyId(9), secret).ok());
  world_.node().publish(key_of(3), pattern(100, 3), kFirst);
  EXPECT_EQ(world_.get(key_of(1), world_.dest(200)).outcome, Outcome::ok);
  EXPECT_EQ(world_.get(key_of(3), world_.dest(200)).outcome, Outcome::ok);
  ASSERT_TRUE(world_.client->drop_key(KeyId(1)).ok());
  EXPECT_EQ(world_.get(key_of(1), world_.dest(200)).outcome, Outcome::reject_sig)
      << "even what was cached under it";
  EXPECT_EQ(world_.get(key_of(3), world_.dest(200)).outcome, Outcome::ok);
}

TEST_F(KvDescriptor, K012_extreme_addresses_and_lengths_end_without_overflow) {
  const auto forge = [&](std::uint64_t addr, std::uint64_t length) {
    Descriptor descriptor = a_.descriptor;
    descriptor.location.addr = RemoteAddr(addr);
    descriptor.length = Length(length);
    world_.node().write(key_of(1), world_.node().sign(key_of(1), descriptor));
    return world_.get(key_of(1), world_.dest(200), ReadMode::framed).outcome;
  };
  EXPECT_EQ(forge(UINT64_MAX - 10, 100), Outcome::reject_format);
  EXPECT_EQ(forge(4096, UINT64_MAX - 20), Outcome::reject_format);
  EXPECT_EQ(forge(4096, UINT64_MAX / 2), Outcome::too_small);
  EXPECT_EQ(world_.posts(), 0u);
  EXPECT_EQ(forge(UINT64_MAX - 300, 100), Outcome::access) << "refused by the node's card";
  EXPECT_EQ(forge(std::uint64_t{1} << 40, 100), Outcome::access);
}

TEST_F(KvDescriptor, K015_random_bytes_are_never_ok) {
  Prng prng(7);
  for (int run = 0; run < 2000; ++run) {
    Bytes descriptor = pattern(prng.below(run % 2 == 0 ? 4096 : 200), prng.next());
    if (run % 2 == 1 && descriptor.size() >= 8) {
      std::copy_n(a_.bytes.begin(), 8, descriptor.begin());
    }
    write(key_of(1), descriptor, pattern(prng.below(64), prng.next()));
    EXPECT_TRUE(is_reject(world_.get(key_of(1), world_.dest(200)).outcome));
  }
  EXPECT_EQ(world_.posts(), 0u);
}

TEST_F(KvDescriptor, K046_exists_is_false_for_what_no_read_would_be_allowed_for) {
  const Stored c = world_.node().publish(key_of(3), pattern(10, 3), kFirst);
  write(key_of(1), a_.bytes, std::nullopt);  // unsigned
  Bytes forged = b_.tag;
  forged[0] ^= std::byte{1};
  write(key_of(2), b_.bytes, forged);
  EXPECT_EQ(world_.exists({key_of(1), key_of(2), key_of(3), key_of(4)}),
            (std::vector<bool>{false, false, true, false}));
  world_.node().restart(true);  // what is published now is of a dead incarnation
  world_.pass(std::chrono::milliseconds(100));
  EXPECT_EQ(world_.exists({key_of(3)}), std::vector<bool>{false});
  EXPECT_EQ(world_.posts(), 0u);
}

TEST_F(KvDescriptor, K069_one_half_evicted_is_no_hit_and_the_next_put_repairs) {
  write(key_of(1), a_.bytes, std::nullopt);
  expect_outcome(key_of(1), Outcome::reject_nosig);
  write(key_of(2), std::nullopt, b_.tag);
  expect_outcome(key_of(2), Outcome::miss);
  for (const std::uint64_t number : {1u, 2u}) {
    ASSERT_EQ(world_.put(key_of(number), pattern(50, number), PutMode::replace).outcome,
              Outcome::ok);
    EXPECT_EQ(world_.get(key_of(number), world_.dest(200)).outcome, Outcome::ok);
  }
}

TEST_F(KvDescriptor, a_ring_never_accepts_what_development_mode_wrote) {
  const Keyring development = Keyring::development();
  Descriptor descriptor = a_.descriptor;
  descriptor.key_id = KeyId(0);
  descriptor.key_hash = development.signing().key_hash(key_of(1));
  const Bytes bytes = encode_descriptor(descriptor);
  write(key_of(1), bytes, std::nullopt);
  expect_outcome(key_of(1), Outcome::reject_nosig);
  const Tag tag = make_tag(development.signing(), "t1", key_of(1), bytes);
  write(key_of(1), bytes, Bytes(tag.begin(), tag.end()));
  expect_outcome(key_of(1), Outcome::reject_sig);
}

class KvGroup : public KvDescriptor {
 protected:
  Client::Group write_group() {
    std::optional<Client::Group> got;
    world_.client->write_group("chain", 3, {key_of(1), key_of(2)}, [&](auto g) { got = g; });
    EXPECT_TRUE(world_.run([&] { return got.has_value(); }));
    return *got;
  }
  Client::Group read_group() {
    std::optional<Client::Group> got;
    world_.client->read_group("chain", [&](auto g) { got = g; });
    EXPECT_TRUE(world_.run([&] { return got.has_value(); }));
    return *got;
  }
};

TEST_F(KvGroup, one_request_resolves_a_chain) {
  ASSERT_EQ(write_group().outcome, Outcome::ok);
  world_.open_client();
  const auto before = world_.valkey->counters().mgets;
  const Client::Group group = read_group();
  ASSERT_EQ(group.outcome, Outcome::ok);
  EXPECT_EQ(group.version, 3u);
  ASSERT_EQ(group.entries.size(), 2u);
  for (const std::uint64_t number : {1u, 2u}) {
    EXPECT_EQ(world_.get(key_of(number), world_.dest(100)).outcome, Outcome::ok);
  }
  EXPECT_EQ(world_.valkey->counters().mgets, before);
}

TEST_F(KvGroup, a_manifest_or_entry_that_is_not_authentic_is_not_used) {
  EXPECT_EQ(read_group().outcome, Outcome::miss);
  ASSERT_EQ(write_group().outcome, Outcome::ok);
  Bytes bytes = *world_.valkey->state().get(manifest_name("t1", "chain"));
  bytes[20] ^= std::byte{1};
  world_.valkey->write(manifest_name("t1", "chain"), bytes);
  EXPECT_EQ(read_group().outcome, Outcome::reject_sig);
  // A good tag over the whole does not excuse entries whose own tags do not hold.
  Manifest manifest;
  Tag tag{};
  std::copy(b_.tag.begin(), b_.tag.end(), tag.begin());
  manifest.entries.push_back({key_of(1), b_.bytes, tag});
  manifest.entries.push_back({key_of(2), b_.bytes, tag});
  world_.valkey->write(manifest_name("t1", "chain"),
                       encode_manifest(manifest, world_.keys.signing(), "t1", "chain"));
  const Client::Group group = read_group();
  ASSERT_EQ(group.entries.size(), 2u);
  EXPECT_EQ(group.entries[0].outcome, Outcome::reject_sig);
  EXPECT_EQ(group.entries[1].outcome, Outcome::ok);
}

}  // namespace
}  // namespace farlift::kv::client::testing
