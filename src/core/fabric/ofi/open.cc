// Discovery: which libfabric domains fit the options, and opening one of them.
#include "core/fabric/ofi/domain.h"
#include "core/fabric/ofi/ofi.h"
#include "core/fabric/ofi/socket_address.h"

#include <cstdlib>
#include <cstring>
#include <sys/socket.h>

namespace farlift::fabric::ofi {
namespace {

const char* provider_text(Provider provider) noexcept {
  switch (provider) {
    case Provider::tcp:
      return "tcp";
    case Provider::verbs:
      return "verbs";
    case Provider::efa:
      return "efa";
  }
  return "?";
}

// fi_freeinfo() frees these strings with free().
char* owned(const char* text) noexcept { return ::strdup(text); }

Result<UniqueInfo> make_hints(const Library& library, Provider provider) {
  UniqueInfo hints(library.dupinfo(nullptr), InfoDeleter{&library});
  if (hints == nullptr) return Error::make(Errc::no_memory, "fabric hints");
  hints->caps = FI_MSG | FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;  // each operation has room of its own for the provider
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode =
      static_cast<int>(FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY);
  hints->domain_attr->threading = FI_THREAD_SAFE;
  switch (provider) {
    case Provider::tcp:
      // By protocol, not by name: "tcp" alone means tcp over rxm in 1.17, where this provider is
      // called "net".
      hints->ep_attr->protocol = FI_PROTO_XNET;
      break;
    case Provider::verbs:
      hints->fabric_attr->prov_name = owned("verbs;ofi_rxm");
      break;
    case Provider::efa:
      hints->fabric_attr->prov_name = owned("efa");
      hints->fabric_attr->name = owned("efa-direct");
      break;
  }
  return hints;
}

std::string text_or_empty(const char* text) { return text != nullptr ? text : ""; }

DomainDescription describe(const fi_info* info) {
  DomainDescription d;
  d.provider = text_or_empty(info->fabric_attr->prov_name);
  d.interface_name = text_or_empty(info->domain_attr->name);
  d.address = describe_socket_address(info->src_addr, info->src_addrlen);
  return d;
}

bool fits_options(const fi_info* info, const OfiOptions& options) {
  const std::uint64_t unsupported =
      static_cast<std::uint64_t>(info->domain_attr->mr_mode) &
      ~static_cast<std::uint64_t>(FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY);
  if (unsupported != 0 || info->domain_attr->mr_key_size > sizeof(std::uint64_t)) return false;
  if (options.interface_name.empty()) return true;
  return text_or_empty(info->domain_attr->name) == options.interface_name;
}

std::string sentence(const OfiOptions& options, const Library& library, const fi_info* list) {
  std::string text = "libfabric " + library.version_text() + " offers no " +
                     provider_text(options.provider) + " domain";
  if (!options.interface_name.empty()) text += " on interface '" + options.interface_name + "'";
  if (!options.listen_ip.empty()) text += " with address " + options.listen_ip;
  std::string names;
  for (const fi_info* info = list; info != nullptr; info = info->next) {
    const std::string name = text_or_empty(info->domain_attr->name);
    if (names.find("'" + name + "'") == std::string::npos)
      names += (names.empty() ? "'" : ", '") + name + "'";
  }
  if (!names.empty()) text += "; there are: " + names;
  return text;
}

struct Discovery {
  std::shared_ptr<const Library> library;
  UniqueInfo list;
};

Result<Discovery> discover(const OfiOptions& options, std::string* why) {
  TRY_ASSIGN(auto library, Library::open(options.library, options.version, why));
  if (!options.listen_ip.empty() && !socket_address(options.listen_ip, 0, 0).ok()) {
    if (why != nullptr) *why = "'" + options.listen_ip + "' is not a numeric IPv4 or IPv6 address";
    return Error::make(Errc::invalid_argument, "listen address");
  }
  TRY_ASSIGN(UniqueInfo hints, make_hints(*library, options.provider));
  const bool by_address = !options.listen_ip.empty() && options.provider != Provider::efa;
  fi_info* raw = nullptr;
  const int rc =
      library->getinfo(FI_VERSION(1, 17), by_address ? options.listen_ip.c_str() : nullptr, nullptr,
                       by_address ? FI_SOURCE : 0, hints.get(), &raw);
  UniqueInfo list(rc == 0 ? raw : nullptr, InfoDeleter{library.get()});
  for (const fi_info* info = list.get(); info != nullptr; info = info->next) {
    if (fits_options(info, options)) return Discovery{std::move(library), std::move(list)};
  }
  if (why != nullptr) *why = sentence(options, *library, list.get());
  if (rc != 0 && rc != -FI_ENODATA) return fabric_error(rc, "fabric discovery");
  return Error::make(Errc::not_found, "fabric discovery");
}

}  // namespace

Result<std::vector<DomainDescription>> list_domains(const OfiOptions& options, std::string* why) {
  TRY_ASSIGN(const Discovery found, discover(options, why));
  std::vector<DomainDescription> result;
  for (const fi_info* info = found.list.get(); info != nullptr; info = info->next) {
    if (fits_options(info, options)) result.push_back(describe(info));
  }
  return result;
}

Result<std::unique_ptr<Domain>> open_domain(const OfiOptions& options, const Clock& clock,
                                            std::string* why) {
  TRY_ASSIGN(const Discovery found, discover(options, why));
  const fi_info* chosen = found.list.get();
  while (!fits_options(chosen, options)) chosen = chosen->next;
  UniqueInfo info(found.library->dupinfo(chosen), InfoDeleter{found.library.get()});
  if (info == nullptr) return Error::make(Errc::no_memory, "fabric description");
  auto domain = OfiDomain::open(found.library, std::move(info), options.provider, clock);
  if (!domain.ok()) {
    if (why != nullptr) {
      *why = "opening " + describe(chosen).provider + " on '" + describe(chosen).interface_name +
             "' failed: " + domain.error().describe();
    }
    return domain.error();
  }
  return std::unique_ptr<Domain>(std::move(domain).value());
}

}  // namespace farlift::fabric::ofi
