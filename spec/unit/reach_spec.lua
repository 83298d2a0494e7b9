-- Everything that a script can reach when it runs strictly, tables and metatables down to the last function (B-129). A name that is
-- missing here was added without a decision.
local host = require "spec.helpers.host"

local expected = [[
_VERSION
ask
ask.elicit
ask.elicit_url
ask.roots
ask.sample
assert
assistant
audio
auth
base64
base64.decode
base64.encode
base64.url_decode
base64.url_encode
bytes
closing
collectgarbage
coroutine
coroutine.close
coroutine.create
coroutine.isyieldable
coroutine.resume
coroutine.running
coroutine.status
coroutine.wrap
coroutine.yield
digest
digest.equal
digest.hmac
digest.md5
digest.sha1
digest.sha256
digest.sha512
disable
embed
enable
enabled
env
error
exec
fail
fail_request
fs
fs.exists
fs.list
fs.mkdir
fs.read
fs.remove
fs.stat
fs.write
getmetatable
hours
http
http.delete
http.get
http.head
http.patch
http.post
http.put
http.request
http.stream
image
ipairs
job
json
json.array
json.array_mt
json.decode
json.empty_array
json.empty_array.<metatable>
json.encode
json.null
json.object
json.object_mt
jwt
jwt.verifier
limit
link
load
log
log.debug
log.error
log.info
log.warn
math
math.abs
math.acos
math.asin
math.atan
math.ceil
math.cos
math.deg
math.exp
math.floor
math.fmod
math.huge
math.log
math.max
math.maxinteger
math.min
math.mininteger
math.modf
math.pi
math.rad
math.random
math.sin
math.sqrt
math.tan
math.tointeger
math.type
math.ult
minutes
next
os
os.clock
os.date
os.difftime
os.time
pairs
parallel
pcall
policy
print
prompt
quota
rawequal
rawget
rawlen
rawset
regex
regex.new
require
resource
resource_updated
seconds
secret
select
setmetatable
sleep
sqlite
sqlite.blob
sqlite.open
store
store.add
store.delete
store.get
store.incr
store.list
store.set
string
string.byte
string.char
string.find
string.format
string.gmatch
string.gsub
string.len
string.lower
string.match
string.pack
string.packsize
string.rep
string.reverse
string.sub
string.unpack
string.upper
t
table
table.concat
table.insert
table.move
table.pack
table.remove
table.sort
table.unpack
text
time
time.format
time.monotonic
time.now
time.parse
tonumber
tool
tostring
try
type
uri
uri.build
uri.decode
uri.encode
uri.join
uri.parse
uri.query
user
utf8
utf8.char
utf8.charpattern
utf8.codepoint
utf8.codes
utf8.len
utf8.offset
uuid
uuid.v4
uuid.v7
xpcall
]]

local function reachable(base)
  local found, seen = {}, {}
  local function visit(prefix, value)
    if type(value) ~= "table" or seen[value] then return end
    seen[value] = true
    local names = {}
    for name in next, value do names[#names + 1] = name end
    table.sort(names, function(a, b) return tostring(a) < tostring(b) end)
    for _, name in ipairs(names) do
      found[#found + 1] = prefix .. tostring(name)
      visit(found[#found] .. ".", value[name])
    end
    local mt = base.getmetatable(value)
    if type(mt) == "table" then
      found[#found + 1] = prefix .. "<metatable>"
      visit(found[#found] .. ".", mt)
    end
  end
  visit("", base)
  table.sort(found)
  return table.concat(found, "\n") .. "\n"
end

describe("what a script can reach", function()
  after_each(host.stop)

  it("is this list, and nothing beyond", function()
    host.start { ["tools/it.lua"] = "return tool { 'It.', function() return 1 end }" }
    local _, base = require("moonpool.sandbox").new(function() end, "scripts/tools/it.lua")
    assert.equal(expected, reachable(base))
  end)
end)
