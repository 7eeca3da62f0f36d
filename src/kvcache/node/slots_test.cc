// The manifest of one generation: allocation, states, reuse (spec kv 2, 7).
#include "kvcache/node/slots.h"

#include "core/base/prng.h"
#include "kvcache/node/heat_index.h"
#include "kvcache/node/key_set.h"
#include "kvcache/node/outcomes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <string>

namespace farlift::kv::node {
namespace {

Bytes key_of(std::uint64_t number, std::size_t size = 12) {
  Bytes key(size, std::byte{'k'});
  std::memcpy(key.data(), &number, sizeof number);
  return key;
}

TEST(KvSlots, payloads_are_aligned_and_headers_fit_before_them) {
  Slots slots(Length(1u << 20));
  std::uint64_t end = 0;
  for (const std::uint64_t length : {0u, 1u, 64u, 65535u, 65536u, 0u, 70001u, 3u}) {
    const auto index = slots.reserve(key_of(length), KeyHash(length), Length(length));
    ASSERT_TRUE(index.has_value());
    const Slot& slot = slots[*index];
    EXPECT_EQ(slot.payload().raw() % (length >= kLargePayload ? 4096 : 64), 0u);
    EXPECT_GE(slot.header().raw(), end);
    end = slot.payload().raw() + length;
    EXPECT_EQ(slots.find(slot.header()), index);
    EXPECT_FALSE(slots.find(Offset(slot.header().raw() + 1)).has_value());
  }
  EXPECT_FALSE(slots.reserve(key_of(1), KeyHash(1), Slots::value_max(Length(1u << 20))));
}

TEST(KvSlots, the_longest_value_fills_an_empty_arena) {
  Slots slots(Length(1u << 20));
  EXPECT_FALSE(slots.reserve(key_of(1), KeyHash(1), Length((1u << 20) - 4095)).has_value());
  const auto index = slots.reserve(key_of(1), KeyHash(1), Length((1u << 20) - 4096));
  ASSERT_TRUE(index.has_value());
  EXPECT_EQ(slots[*index].payload().raw(), 4096u);
}

TEST(KvSlots, every_wrong_transition_aborts) {
  Slots slots(Length(1u << 20));
  const auto fresh = [&] { return *slots.reserve(key_of(1), KeyHash(1), Length(100)); };
  const SlotIndex reserved = fresh();
  EXPECT_DEATH(slots.publish(reserved), "");
  EXPECT_DEATH(slots.quarantine(reserved, false), "");
  EXPECT_DEATH(slots.unseal(reserved), "");
  slots.set_granted(reserved, true);
  EXPECT_DEATH(slots.seal(reserved, Version(1, 1), Crc32c(1)), "") << "P2: a peer may write it";
  EXPECT_DEATH(slots.release(reserved), "");
  slots.set_granted(reserved, false);
  slots.seal(reserved, Version(1, 1), Crc32c(1));
  EXPECT_DEATH(slots.set_granted(reserved, true), "") << "P3";
  slots.publish(reserved);
  EXPECT_DEATH(slots.release(reserved), "") << "only a rotation frees what was published";
  EXPECT_DEATH(slots.seal(reserved, Version(1, 2), Crc32c(1)), "");
  slots.quarantine(reserved, false);
  EXPECT_DEATH(slots.release(reserved), "");
  EXPECT_DEATH(slots.publish(reserved), "") << "it was deleted, not unknown";
  const SlotIndex unknown = fresh();
  slots.seal(unknown, Version(1, 1), Crc32c(1));
  slots.quarantine(unknown, true);
  EXPECT_DEATH(slots.release(unknown), "") << "P14";
  slots.publish(unknown);
  EXPECT_EQ(slots.count(SlotState::published), 1u);
}

// Against a model: slots never overlap, keys and counts are right, what is freed comes back.
TEST(KvSlots, random_use_agrees_with_a_model) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Prng prng(seed);
    Slots slots(Length(1u << 20));
    struct Held {
      Bytes key;
      std::uint64_t from, to;
      std::uint32_t serial;
      bool fixed;
    };
    std::map<std::uint32_t, Held> held;
    for (std::uint64_t i = 0; i < 2000; ++i) {
      if (prng.chance(1, 2) || held.empty()) {
        const std::uint64_t length = prng.chance(1, 10) ? prng.below(100000) : prng.below(3000);
        const Bytes key = key_of(i, 9 + prng.below(100));
        const auto index = slots.reserve(key, KeyHash(i), Length(length));
        if (!index) continue;
        const Slot& slot = slots[*index];
        ASSERT_FALSE(held.contains(index->raw()));
        const std::uint64_t from = slot.header().raw(), to = slot.payload().raw() + length;
        ASSERT_LE(to, 1u << 20);
        for (const auto& [other, h] : held) ASSERT_TRUE(to <= h.from || from >= h.to);
        held[index->raw()] = {key, from, to, slot.serial, false};
      } else {
        auto at = std::next(held.begin(), static_cast<std::ptrdiff_t>(prng.below(held.size())));
        const SlotIndex index(at->first);
        ASSERT_TRUE(std::ranges::equal(slots.key(index), at->second.key));
        ASSERT_TRUE(slots.valid(index, at->second.serial));
        if (at->second.fixed) continue;
        if (prng.chance(1, 10)) {
          slots.seal(index, Version(1, 1), Crc32c(1));
          slots.publish(index);
          at->second.fixed = true;
          continue;
        }
        slots.release(index);
        ASSERT_FALSE(slots.valid(index, at->second.serial));
        held.erase(at);
      }
    }
    std::uint64_t fixed = 0;
    for (const auto& [index, h] : held) fixed += h.fixed ? 1 : 0;
    EXPECT_EQ(slots.count(SlotState::published), fixed);
    EXPECT_EQ(slots.count(SlotState::reserved), held.size() - fixed);
    for (const auto& [index, h] : held) {
      if (!h.fixed) slots.release(SlotIndex(index));
    }
    EXPECT_TRUE(fixed > 0 || slots.used() == Length());
  }
}

TEST(KvSlots, a_million_small_values_cost_little) {
  Slots slots(Length(std::uint64_t{8} << 30));
  HeatIndex heat;
  constexpr std::uint64_t kValues = 1'000'000;
  for (std::uint64_t i = 0; i < kValues; ++i) {
    const auto index = slots.reserve(key_of(i, 64), KeyHash(i * 0x9E3779B97F4A7C15u), Length(4096));
    ASSERT_TRUE(index.has_value());
    slots.seal(*index, Version(1, static_cast<std::uint32_t>(i)), Crc32c(1));
    slots.publish(*index);
    heat.insert({KeyHash(i * 0x9E3779B97F4A7C15u), ArenaId(1), *index});
  }
  EXPECT_LE(slots.used().raw() / kValues, 4160u);
  const std::uint64_t bytes = slots.size() * sizeof(Slot) + slots.key_bytes() + heat.bytes();
  RecordProperty("bytes_per_value", static_cast<int>(bytes / kValues));
  EXPECT_LE(bytes / kValues, 64u + 40u + 40u) << "64 of them are the key";
}

TEST(KvKeySet, remembers_everything) {
  KeySet set;
  for (std::uint64_t i = 0; i < 5000; ++i) {
    EXPECT_FALSE(set.contains(RKey(i * i)) && i > 1) << i;
    set.insert(RKey(i * i));
    set.insert(RKey(i * i));
  }
  EXPECT_EQ(set.size(), 5000u);
  for (std::uint64_t i = 0; i < 5000; ++i) EXPECT_TRUE(set.contains(RKey(i * i)));
  EXPECT_FALSE(set.contains(RKey(2)));
}

TEST(KvHeatIndex, agrees_with_a_map) {
  HeatIndex index;
  std::map<std::uint64_t, std::uint32_t> model;
  Prng prng(3);
  for (int i = 0; i < 20000; ++i) {
    const std::uint64_t hash = prng.below(700) << (8 + prng.below(2) * 8);
    const auto slot = static_cast<std::uint32_t>(prng.below(50));
    if (prng.chance(1, 2)) {
      index.insert({KeyHash(hash), ArenaId(1), SlotIndex(slot)});
      model[hash] = slot;
    } else {
      index.erase({KeyHash(hash), ArenaId(1), SlotIndex(slot)});
      const auto at = model.find(hash);
      if (at != model.end() && at->second == slot) model.erase(at);
    }
    const auto found = index.find(KeyHash(hash));
    const auto at = model.find(hash);
    ASSERT_EQ(found.has_value(), at != model.end());
    ASSERT_TRUE(!found || found->slot.raw() == at->second);
  }
  EXPECT_EQ(index.size(), model.size());
}

// Puts that begin, are joined, finish, are forgotten and expire, against a plain map.
TEST(KvOutcomes, agree_with_a_map) {
  struct Known {
    bool finished = false;
    std::uint32_t rev = 0;
    Instant until;
  };
  Outcomes outcomes;
  std::map<std::uint64_t, Known> model;
  Prng prng(4);
  Instant now{};
  const auto id_of = [](std::uint64_t number) {
    PutId id{};
    std::memcpy(id.data() + 3, &number, sizeof number);
    return id;
  };
  for (std::uint32_t i = 1; i <= 50000; ++i) {
    now += std::chrono::milliseconds(prng.below(200));
    outcomes.expire(now);
    std::erase_if(model,
                  [&](const auto& one) { return one.second.finished && one.second.until <= now; });
    const std::uint64_t number = prng.below(900);
    const std::string tenant = number % 2 == 0 ? "even" : "odd";
    const auto known = model.find(number);
    ASSERT_EQ(outcomes.knows(tenant, id_of(number)), known != model.end());
    ASSERT_FALSE(outcomes.knows("nobody", id_of(number)));
    std::optional<PutReply> told;
    const auto begun = outcomes.begin(tenant, id_of(number), KeyHash(number * 7),
                                      [&](const PutReply& reply) { told = reply; });
    ASSERT_EQ(begun, known == model.end() ? Outcomes::Begun::first : Outcomes::Begun::repeat);
    ASSERT_EQ(told.has_value(), known != model.end() && known->second.finished);
    ASSERT_EQ(outcomes.begin(tenant, id_of(number), KeyHash(number * 7 + 1), {}),
              Outcomes::Begun::mismatch);
    if (told) {
      EXPECT_EQ(told->version.rev(), known->second.rev);
      EXPECT_EQ(told->descriptor, Bytes(80, static_cast<std::byte>(known->second.rev)));
      EXPECT_EQ(told->tag, Bytes(32, static_cast<std::byte>(known->second.rev + 1)));
      continue;
    }
    model.try_emplace(number);
    PutReply reply;
    reply.version = Version(i, 1);
    reply.descriptor.assign(80, static_cast<std::byte>(i));
    reply.tag.assign(32, static_cast<std::byte>(i + 1));
    switch (prng.below(4)) {
      case 0:
        outcomes.forget(tenant, id_of(number), reply);
        model.erase(number);
        break;
      default:
        outcomes.finish(tenant, id_of(number), reply, now);
        model[number] = {true, i, now + kOutcomeKept};
    }
    ASSERT_TRUE(told.has_value());
    ASSERT_EQ(told->version, reply.version);
  }
  EXPECT_EQ(outcomes.size(), model.size());
}

}  // namespace
}  // namespace farlift::kv::node
