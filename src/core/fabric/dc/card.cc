#include "core/fabric/dc/card.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace farlift::fabric::dc {
namespace {

void say(std::string* why, std::string text) {
  if (why != nullptr) *why = std::move(text);
}

bool is_zero(const ibv_gid& gid) noexcept {
  return std::all_of(std::begin(gid.raw), std::end(gid.raw), [](std::uint8_t b) { return b == 0; });
}

struct DeviceList {
  explicit DeviceList(const Verbs& v) : verbs(v), devices(v.get_device_list(&count)) {}
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList() {
    if (devices != nullptr) verbs.free_device_list(devices);
  }
  const Verbs& verbs;
  int count = 0;
  ibv_device** const devices;
};

}  // namespace

Result<std::unique_ptr<Card>> Card::open(std::shared_ptr<const Verbs> verbs,
                                         const DcOptions& options, std::string* why) {
  if (options.port == 0) {
    say(why, "DC ports are counted from 1");
    return Error::make(Errc::invalid_argument, "dc port");
  }
  if (options.queues == 0 || options.queues > kQueuesMax) {
    say(why, "the number of DC queues must be 1 to " + std::to_string(kQueuesMax));
    return Error::make(Errc::invalid_argument, "dc queues");
  }
  auto card = std::unique_ptr<Card>(new Card(std::move(verbs), options));
  TRY(card->open_device(why));
  TRY(card->read_port(why));
  TRY(card->choose_gid(why));
  card->pd_ = card->own<ibv_pd, &Verbs::dealloc_pd>(card->verbs_->alloc_pd(card->context_.get()));
  if (card->pd_ == nullptr) return Error::from_errno("ibv_alloc_pd");
  return card;
}

Status Card::open_device(std::string* why) {
  const DeviceList list(*verbs_);
  if (list.devices == nullptr || list.count == 0) {
    say(why, "there is no RDMA card on this host");
    return Error::make(Errc::not_found, "dc device");
  }
  ibv_device* chosen = nullptr;
  for (int i = 0; i < list.count && chosen == nullptr; ++i) {
    ibv_device* const device = list.devices[i];
    const bool wanted =
        options_.device.empty() ? verbs_->is_mlx5(device) : options_.device == device->name;
    if (wanted) chosen = device;
  }
  if (chosen == nullptr) {
    say(why, options_.device.empty()
                 ? "no RDMA card of this host is an mlx5 card, and only those know DC"
                 : "there is no RDMA card named " + options_.device);
    return Error::make(Errc::not_found, "dc device");
  }
  name_ = chosen->name;
  if (!verbs_->is_mlx5(chosen)) {
    say(why, name_ + " is not an mlx5 card, and only those know DC");
    return Error::make(Errc::unsupported, "dc device");
  }
  context_ = own<ibv_context, &Verbs::close_device>(verbs_->open_device(chosen));
  if (context_ == nullptr) {
    const int error = errno;
    say(why, name_ + " cannot be opened: " + std::strerror(error));
    return Error::from_errno("ibv_open_device", error);
  }
  ibv_device_attr attributes{};
  if (const int rc = verbs_->query_device(context_.get(), &attributes); rc != 0) {
    return Error::from_errno("ibv_query_device", rc);
  }
  reads_in_flight_max_ =
      static_cast<std::uint8_t>(std::clamp(attributes.max_qp_init_rd_atom, 1, 16));
  return ok_status();
}

Status Card::read_port(std::string* why) {
  if (const int rc = verbs_->query_port(context_.get(), options_.port, &port_); rc != 0) {
    say(why, name_ + " has no port " + std::to_string(options_.port));
    return Error::make(Errc::not_found, "dc port", rc);
  }
  if (port_.state != IBV_PORT_ACTIVE) {
    say(why, "port " + std::to_string(options_.port) + " of " + name_ + " is not active");
    return Error::make(Errc::not_found, "dc port");
  }
  return ok_status();
}

// On RoCE the table holds v1 and v2 forms of each address; only v2 is routable.
Status Card::choose_gid(std::string* why) {
  const bool ethernet = port_.link_layer == IBV_LINK_LAYER_ETHERNET;
  const int first = options_.gid_index >= 0 ? options_.gid_index : 0;
  const int last = options_.gid_index >= 0 ? first : (ethernet ? port_.gid_tbl_len - 1 : 0);
  for (int i = first; i <= last; ++i) {
    ibv_gid_entry entry{};
    const auto index = static_cast<std::uint32_t>(i);
    if (verbs_->query_gid(context_.get(), options_.port, index, &entry) != 0) continue;
    if (is_zero(entry.gid)) continue;
    const bool link_local = entry.gid.raw[0] == 0xfe && entry.gid.raw[1] == 0x80;
    const bool fits = !ethernet || (entry.gid_type == IBV_GID_TYPE_ROCE_V2 && !link_local);
    if (options_.gid_index < 0 && !fits) continue;
    gid_ = entry.gid;
    gid_index_ = index;
    return ok_status();
  }
  say(why, options_.gid_index >= 0
               ? name_ + " has no GID with index " + std::to_string(options_.gid_index)
               : name_ + " has no RoCE v2 GID; give its port an IP address");
  return Error::make(Errc::not_found, "dc gid");
}

DcAddress Card::address(std::uint32_t dctn) const noexcept {
  DcAddress address;
  std::copy(std::begin(gid_.raw), std::end(gid_.raw), address.gid.begin());
  address.dctn = dctn;
  address.lid = port_.link_layer == IBV_LINK_LAYER_ETHERNET ? std::uint16_t{0} : port_.lid;
  return address;
}

ibv_ah_attr Card::route(const DcAddress& to) const noexcept {
  ibv_ah_attr route{};
  route.is_global = 1;
  std::copy(to.gid.begin(), to.gid.end(), std::begin(route.grh.dgid.raw));
  route.grh.sgid_index = static_cast<std::uint8_t>(gid_index_);
  route.grh.hop_limit = options_.hop_limit;
  route.grh.traffic_class = options_.traffic_class;
  route.dlid = to.lid;
  route.sl = options_.service_level;
  route.port_num = options_.port;
  return route;
}

Result<std::vector<DeviceDescription>> list_devices(std::string* why) {
  TRY_ASSIGN(const std::shared_ptr<const Verbs> verbs, load_verbs(why));
  std::vector<DeviceDescription> devices;
  {
    const DeviceList list(*verbs);
    for (int i = 0; list.devices != nullptr && i < list.count; ++i) {
      devices.push_back({list.devices[i]->name, verbs->is_mlx5(list.devices[i]), {}});
    }
  }
  if (devices.empty()) {
    say(why, "there is no RDMA card on this host");
    return Error::make(Errc::not_found, "dc device");
  }
  for (DeviceDescription& device : devices) {
    DcOptions options;
    options.device = device.name;
    std::string problem;
    if (!open_domain(verbs, options, &problem).ok()) device.problem = std::move(problem);
  }
  return devices;
}

}  // namespace farlift::fabric::dc
