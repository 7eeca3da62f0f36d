#include "s3/gateway/identities.h"

#include "core/codec/json.h"

#include <algorithm>

namespace farlift::s3::gateway {

namespace {

using codec::Json;
using Why = std::string;  // empty: fine

Why texts_of(const Json* list, std::vector<std::string>& out, const char* what) {
  const Json::Array* items = list == nullptr ? nullptr : list->array();
  if (items == nullptr || items->empty())
    return std::string("a policy needs a list of ") + what + ", such as [\"*\"]";
  for (const Json& item : *items) {
    if (item.text() == nullptr) return std::string(what) + " are strings";
    out.push_back(*item.text());
  }
  return {};
}

Why policies_of(const Json& from, std::vector<Policy>& out) {
  const Json* list = from.find("policies");
  if (list == nullptr) return {};
  if (list->array() == nullptr) return "policies is no list";
  for (const Json& item : *list->array()) {
    Policy& policy = out.emplace_back();
    const Json* effect = item.find("effect");
    const std::string* text = effect == nullptr ? nullptr : effect->text();
    if (text == nullptr || (*text != "allow" && *text != "deny"))
      return "the effect of a policy is \"allow\" or \"deny\"";
    policy.allow = *text == "allow";
    if (Why why = texts_of(item.find("actions"), policy.actions, "actions"); !why.empty())
      return why;
    if (Why why = texts_of(item.find("resources"), policy.resources, "resources"); !why.empty())
      return why;
  }
  return {};
}

const std::string* text_member(const Json& from, std::string_view name) {
  const Json* member = from.find(name);
  return member == nullptr ? nullptr : member->text();
}

}  // namespace

bool matches(std::string_view pattern, std::string_view text) noexcept {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;  // the last one, and how far it has eaten
  std::size_t eaten = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      eaten = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++eaten;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool Identity::may(std::string_view action, std::string_view resource) const noexcept {
  bool allowed = false;
  for (const Policy& policy : policies) {
    const auto covers = [](const std::vector<std::string>& patterns, std::string_view text) {
      return std::any_of(patterns.begin(), patterns.end(),
                         [&](const std::string& one) { return matches(one, text); });
    };
    if (!covers(policy.actions, action) || !covers(policy.resources, resource)) continue;
    if (!policy.allow) return false;
    allowed = true;
  }
  return allowed;
}

std::variant<std::shared_ptr<const Identities>, std::string> Identities::parse(
    std::string_view json) {
  const Result<Json> parsed = Json::parse(json);
  if (!parsed.ok() || parsed->object() == nullptr) return "it is no JSON object";
  auto out = std::make_shared<Identities>();
  const Json* list = parsed->find("identities");
  if (list == nullptr || list->array() == nullptr) return "the list \"identities\" is missing";
  for (const Json& item : *list->array()) {
    auto identity = std::make_shared<Identity>();
    const std::string* name = text_member(item, "name");
    if (name == nullptr || name->empty()) return "an identity has no name";
    identity->name = *name;
    const auto wrong = [&](const std::string& why) { return "identity " + *name + ": " + why; };
    if (Why why = policies_of(item, identity->policies); !why.empty()) return wrong(why);
    const Json* credentials = item.find("credentials");
    if (credentials == nullptr || credentials->array() == nullptr)
      return wrong("the list \"credentials\" is missing");
    for (const Json& one : *credentials->array()) {
      const std::string* access = text_member(one, "accessKey");
      const std::string* secret = text_member(one, "secretKey");
      if (access == nullptr || secret == nullptr || access->empty() || secret->empty())
        return wrong("a credential has an accessKey and a secretKey");
      if (!out->by_key_.emplace(*access, Credential{*secret, identity}).second)
        return wrong("the access key " + *access + " is there twice");
    }
  }
  if (const Json* anonymous = parsed->find("anonymous")) {
    if (Why why = policies_of(*anonymous, out->anonymous_.policies); !why.empty())
      return "anonymous: " + why;
  }
  return std::shared_ptr<const Identities>(std::move(out));
}

std::shared_ptr<const Identities> Identities::single(std::string access_key,
                                                     std::string secret_key) {
  auto identity = std::make_shared<Identity>();
  identity->name = access_key;
  identity->policies.push_back({true, {"*"}, {"*"}});
  auto out = std::make_shared<Identities>();
  out->by_key_.emplace(std::move(access_key), Credential{std::move(secret_key), identity});
  return out;
}

std::shared_ptr<const Identities> Identities::open_to_all() {
  auto out = std::make_shared<Identities>();
  out->anonymous_.policies.push_back({true, {"*"}, {"*"}});
  return out;
}

const Identities::Credential* Identities::find(std::string_view access_key) const {
  const auto found = by_key_.find(access_key);
  return found == by_key_.end() ? nullptr : &found->second;
}

}  // namespace farlift::s3::gateway
