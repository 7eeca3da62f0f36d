#include "s3/gateway/xml.h"

#include "core/codec/text.h"

#include <pugixml.hpp>

#include <algorithm>
#include <cctype>

namespace farlift::s3::gateway {
namespace {

constexpr std::string_view kNamespace = "http://s3.amazonaws.com/doc/2006-03-01/";

S3Error malformed(std::string why = {}) { return refuse(S3Code::malformed_xml, std::move(why)); }

// Refuses what would make the parser recurse or allocate without need, before it starts: document
// types, and elements that are nested too deep.
S3Status look_over(std::string_view xml) {
  if (xml.size() > kXmlBytesMax) return malformed("The XML is larger than 4 MiB.");
  std::size_t depth = 0;
  for (std::size_t at = xml.find('<'); at != std::string_view::npos; at = xml.find('<', at)) {
    const std::string_view rest = xml.substr(at);
    std::string_view end = ">";
    if (rest.starts_with("<!--")) {
      end = "-->";
    } else if (rest.starts_with("<![CDATA[")) {
      end = "]]>";
    } else if (rest.starts_with("<!")) {
      return malformed("The XML has a document type.");
    } else if (rest.starts_with("<?")) {
      end = "?>";
    }
    const std::size_t close = xml.find(end, at);
    if (close == std::string_view::npos) return malformed();
    if (end == ">" && rest.starts_with("</")) {
      if (depth == 0) return malformed();
      --depth;
    } else if (end == ">" && xml[close - 1] != '/') {
      if (++depth > kXmlDepthMax) return malformed("The XML is nested too deep.");
    }
    at = close + end.size();
  }
  return {};
}

std::string_view local_name(const pugi::xml_node& node) noexcept {
  const std::string_view name = node.name();
  const std::size_t colon = name.find(':');
  return colon == std::string_view::npos ? name : name.substr(colon + 1);
}

pugi::xml_node child(const pugi::xml_node& parent, std::string_view name) {
  for (const pugi::xml_node& node : parent.children()) {
    if (node.type() == pugi::node_element && local_name(node) == name) return node;
  }
  return {};
}

std::string text_of(const pugi::xml_node& parent, std::string_view name) {
  return child(parent, name).text().get();
}

// The document's root, which must be `name`.
S3Result<pugi::xml_node> load(pugi::xml_document& document, std::string_view xml,
                              std::string_view name) {
  TRY(look_over(xml));
  // Blanks are content: a key may be one.
  const pugi::xml_parse_result parsed =
      document.load_buffer(xml.data(), xml.size(),
                           pugi::parse_default | pugi::parse_ws_pcdata_single, pugi::encoding_utf8);
  if (!parsed) return malformed();
  const pugi::xml_node root = document.document_element();
  if (local_name(root) != name)
    return malformed("The root element is not " + std::string(name) + ".");
  return root;
}

}  // namespace

XmlWriter::XmlWriter() : out_("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n") {}

XmlWriter& XmlWriter::open(std::string_view name) {
  out_ += '<';
  out_ += name;
  out_ += '>';
  return *this;
}

XmlWriter& XmlWriter::root(std::string_view name) {
  out_ += '<';
  out_ += name;
  out_ += " xmlns=\"";
  out_ += kNamespace;
  out_ += "\">";
  return *this;
}

XmlWriter& XmlWriter::close(std::string_view name) {
  out_ += "</";
  out_ += name;
  out_ += '>';
  return *this;
}

XmlWriter& XmlWriter::element(std::string_view name, std::string_view value) {
  open(name);
  escape(value);
  return close(name);
}

XmlWriter& XmlWriter::element(std::string_view name, std::uint64_t value) {
  return element(name, std::string_view(codec::format_u64(value)));
}

XmlWriter& XmlWriter::text(std::string_view value) {
  escape(value);
  return *this;
}

XmlWriter& XmlWriter::flag(std::string_view name, bool value) {
  return element(name, std::string_view(value ? "true" : "false"));
}

XmlWriter& XmlWriter::optional(std::string_view name, std::string_view value) {
  return value.empty() ? *this : element(name, value);
}

void XmlWriter::escape(std::string_view value) {
  for (const char c : value) {
    switch (c) {
      case '&':
        out_ += "&amp;";
        break;
      case '<':
        out_ += "&lt;";
        break;
      case '>':
        out_ += "&gt;";
        break;
      case '"':
        out_ += "&quot;";
        break;
      case '\r':  // a bare one would be read back as a line feed
        out_ += "&#13;";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 && c != '\t' && c != '\n') {
          out_ += "\xef\xbf\xbd";
        } else {
          out_ += c;
        }
    }
  }
}

S3Result<DeleteRequest> parse_delete(std::string_view xml) {
  pugi::xml_document document;
  TRY_ASSIGN(const pugi::xml_node root, load(document, xml, "Delete"));
  DeleteRequest request;
  request.quiet = text_of(root, "Quiet") == "true";
  for (const pugi::xml_node& node : root.children()) {
    if (local_name(node) != "Object") continue;
    if (request.keys.size() == kDeleteKeysMax)
      return malformed("A request may delete at most 1000 objects.");
    DeleteRequest::Key key{text_of(node, "Key"), text_of(node, "VersionId"), text_of(node, "ETag")};
    if (key.key.empty()) return malformed("An Object has no Key.");
    request.keys.push_back(std::move(key));
  }
  if (request.keys.empty()) return malformed("There is no Object to delete.");
  return request;
}

S3Result<std::vector<CompletePart>> parse_complete(std::string_view xml) {
  pugi::xml_document document;
  TRY_ASSIGN(const pugi::xml_node root, load(document, xml, "CompleteMultipartUpload"));
  std::vector<CompletePart> parts;
  for (const pugi::xml_node& node : root.children()) {
    if (local_name(node) != "Part") continue;
    if (parts.size() == kPartsMax) return malformed("There are more than 10000 parts.");
    CompletePart part;
    const Result<std::uint32_t> number = codec::parse_u32(text_of(node, "PartNumber"));
    if (!number.ok() || *number < 1 || *number > kPartsMax)
      return refuse(S3Code::invalid_argument, "A PartNumber lies between 1 and 10000.");
    part.number = *number;
    part.etag = text_of(node, "ETag");
    if (part.etag.empty()) return malformed("A Part has no ETag.");
    for (const pugi::xml_node& member : node.children()) {
      std::string_view name = local_name(member);
      if (!name.starts_with("Checksum")) continue;
      name.remove_prefix(std::string_view("Checksum").size());
      std::string algorithm(name);
      std::transform(algorithm.begin(), algorithm.end(), algorithm.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      part.checksums[algorithm] = member.text().get();
    }
    parts.push_back(std::move(part));
  }
  if (parts.empty()) return malformed("There is no Part.");
  return parts;
}

S3Result<Tags> parse_tagging(std::string_view xml) {
  pugi::xml_document document;
  TRY_ASSIGN(const pugi::xml_node root, load(document, xml, "Tagging"));
  Tags tags;
  for (const pugi::xml_node& node : child(root, "TagSet").children()) {
    if (local_name(node) != "Tag") continue;
    if (tags.size() == kTagsMax)
      return refuse(S3Code::invalid_tag, "An object has at most 10 tags.");
    tags.emplace_back(text_of(node, "Key"), text_of(node, "Value"));
  }
  return tags;
}

S3Result<std::string> parse_create_bucket(std::string_view xml) {
  if (xml.empty()) return std::string();
  pugi::xml_document document;
  TRY_ASSIGN(const pugi::xml_node root, load(document, xml, "CreateBucketConfiguration"));
  return text_of(root, "LocationConstraint");
}

S3Result<std::string> parse_versioning(std::string_view xml) {
  pugi::xml_document document;
  TRY_ASSIGN(const pugi::xml_node root, load(document, xml, "VersioningConfiguration"));
  const std::string status = text_of(root, "Status");
  if (status != "Enabled" && status != "Suspended")
    return malformed("Status is Enabled or Suspended.");
  return status;
}

}  // namespace farlift::s3::gateway
