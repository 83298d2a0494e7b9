-- Reads recorded calls: from a file, or from the memory of the running gateway.

local files = require "moonpool.workbench.format.files"
local json = require "moonpool.json"
local place_of = require "moonpool.workbench.client.address"
local stderr = require "moonpool.workbench.format.stderr"
local wire = require "moonpool.wire"

local records = {}

local MAX_FILE_BYTES <const> = 256 << 20
local MAX_LINE_BYTES <const> = 64 << 20

--- The request for a path of the admin listener: for wire.fetch; or nil, why, hint, exit code.
function records.request(args, method, path, body)
  if not args.address then
    return nil, "this configuration has no admin listener", "write 'admin: {listen: 127.0.0.1:7301}' into it, or name one with --admin", 78
  end
  local place, what, hint = place_of(args.address)
  if not place then return nil, what, hint, 2 end
  local headers = {}
  if args.token then headers[1] = "Authorization: Bearer " .. args.token end
  if method ~= "GET" then table.move({ "Content-Type: application/json", "moonpool-admin: 1" }, 1, 2, #headers + 1, headers) end
  return { method = method, url = place.origin .. path, socket = place.unix, headers = headers, body = body }
end

--- Sends it: the status and the body; or nil, why.
function records.ask(args, method, path, body)
  local request, what, hint = records.request(args, method, path, body)
  if not request then return nil, what, hint end
  local status, answer = wire.fetch(request)
  if not status then return nil, stderr.unreached(args.address, answer) end
  if status == 401 then return nil, stderr.no_token(args.address, args.token) end
  if status ~= 200 then
    local value = json.decode(answer)
    return nil, type(value) == "table" and type(value.error) == "string" and value.error or "the gateway answered with " .. status
  end
  return answer
end

--- One page of the gateway's recorded calls after `after`: the lines, and { next, lost, more, on, asked }; or nil, why,
--- hint.
function records.page(args, after, last)
  local body, why, hint = records.ask(args, "GET", ("/api/records?after=%d%s"):format(after, last and "&last=" .. last or ""))
  if not body then return nil, why, hint end
  local head, lines = body:match "^([^\n]*)\n(.*)$"
  local facts = head and json.decode(head)
  if type(facts) ~= "table" or math.type(facts.next) ~= "integer" then return nil, "the gateway's answer has no records" end
  return lines, facts
end

local HEAD <const> = '{"moonpool":"record 1"'

-- True for the beginning of a record: what a killed process or a full disk leaves of a line.
local function is_torn(line) return line:sub(1, #HEAD) == HEAD:sub(1, #line) end

-- The records of the lines of a file. A line that is no record is reported on stderr: a torn one is counted as `torn`,
-- any other is `trouble`.
local function parse(list, text, name)
  local n = 0
  for line in text:gmatch "[^\n]+" do
    n = n + 1
    local value, why = nil, "it is too long"
    if #line <= MAX_LINE_BYTES then value, why = json.decode(line) end
    if value == nil and #line <= MAX_LINE_BYTES and is_torn(line) then
      stderr.note(("%s:%d: only the beginning of a record is there: a process was ended, or a disk was full, while it was written"):format(name, n))
      list.torn = (list.torn or 0) + 1
    elseif type(value) ~= "table" or value.moonpool ~= "record 1" then
      stderr.note(("%s:%d: the line is no record of a call%s"):format(name, n, type(why) == "string" and ": " .. why or ""))
      list.trouble = true
    else
      list[#list + 1] = value
    end
  end
end

local function from_file(path)
  local text, why = files.read(path, MAX_FILE_BYTES)
  if not text then return nil, why end
  if text == "" and io.open(path .. "/.") then return nil, path .. " is a folder" end
  local list = {}
  parse(list, text, path)
  return list
end

local function from_gateway(args, last)
  local list, after = {}, 0
  repeat
    local lines, facts, hint = records.page(args, after, last)
    if not lines then return nil, facts, hint end
    parse(list, lines, "gateway")
    after, last = facts.next, nil
  until not facts.more
  return list
end

--- The records that the command line names: { record, …, torn, trouble }; or nil, why, hint, exit code.
function records.read(args)
  if args[1] and args.last then return nil, "replay takes a file, or --last", "as in moonpool replay calls.jsonl", 2 end
  if args[1] then return from_file(args[1]) end
  local last = args.last and math.tointeger(tonumber(args.last)) or not args.last and 50
  if not last or last < 1 or last > 100000 then return nil, "--last is a number from 1 to 100000: '" .. args.last .. "'", "as in --last 50", 2 end
  return from_gateway(args, last)
end

return records
