#include "kvcache/control/scripts.h"

namespace farlift::kv {

const Script kPublishScript{R"lua(#!lua
local cur = redis.call('GET', KEYS[1])
if ARGV[1] == 'A' then
  if cur then return {'EXISTS', cur} end
else
  local version = ''
  if cur then version = string.sub(cur, 49, 56) end
  if version ~= ARGV[2] then return {'CONFLICT', cur or ''} end
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[5])
if ARGV[4] == '' then
  redis.call('DEL', KEYS[2])
else
  redis.call('SET', KEYS[2], ARGV[4], 'PX', ARGV[5])
end
return {'OK', cur or ''}
)lua",
                            "5d2c83edec007504607a8ede218e91bc451796b2"};

const Script kUnpublishScript{R"lua(#!lua
local cur = redis.call('GET', KEYS[1])
if not cur then
  if ARGV[1] == '*' or (ARGV[1] == 'E' and ARGV[2] == '') then redis.call('DEL', KEYS[2]) end
  return 0
end
if ARGV[1] == 'L' then
  if string.sub(cur, 9, 40) ~= ARGV[2] then return -1 end
elseif ARGV[1] == 'V' then
  if string.sub(cur, 49, 56) ~= ARGV[2] then return -1 end
elseif ARGV[1] == 'E' then
  if cur ~= ARGV[2] then return -1 end
elseif ARGV[1] ~= '*' then
  return redis.error_reply('ERR unknown mode')
end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
)lua",
                              "e2d7936b3ca8baa5a1ebf7489a82945729825c45"};

}  // namespace farlift::kv
