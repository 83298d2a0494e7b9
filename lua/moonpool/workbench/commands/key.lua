-- moonpool key: API keys, passwords of users who sign in, and pairs of keys for tokens.

local config_file = require "moonpool.config_file"
local files = require "moonpool.workbench.format.files"
local host = require "moonpool.host"
local keys = require "moonpool.keys"
local stderr = require "moonpool.workbench.format.stderr"
local duration = require "moonpool.workbench.format.duration"
local suggest = require "moonpool.runtime.suggest"
local wire = require "moonpool.wire"

-- The numbers of scrypt in new lines: a hash takes 32 MiB, and 0.1 to 0.3 s.
local N <const>, R <const>, P <const> = 32768, 8, 3
local MAX_BYTES <const>, LEAST_CHARACTERS <const> = 1024, 8
local NOT_THERE <const> = 2        -- ENOENT

local function hex(bytes) return (bytes:gsub(".", function(byte) return ("%02x"):format(byte:byte()) end)) end

-- Checks a comma-separated list of scopes: returns an error text, or nil.
local function complaint(scopes)
  for scope in (scopes .. ","):gmatch "([^,]*)," do
    if scope == "" or #scope > 512 or scope:find "[^!#-[%]^-~]" then return "'" .. scope .. "' is not a scope" end
  end
end

-- Makes the line of the key file.
local function line_of(name, key, args)
  local parts = { name, "sha256:" .. hex(keys.sha256(key)), args.scopes or "-" }
  if args.expires then
    local seconds = duration(args.expires)
    if not seconds then return nil, "'" .. args.expires .. "' is not a duration" end
    parts[4] = os.date("%Y-%m-%d", os.time() + seconds)
  end
  return table.concat(parts, " ")
end

local function new(args)
  local name = args[2]
  if not name or args[3] then return stderr.misuse("key new takes one name, for the owner of the key", "as in moonpool key new ci --scopes notes:read") end
  if not name:find "^[%w_.@:/-]+$" or #name > 128 then return stderr.misuse("'" .. name .. "' is not a valid name for a key", "letters, digits and _.@:/-") end
  local wrong = args.scopes and complaint(args.scopes)
  if wrong then return stderr.misuse(wrong, "as in --scopes notes:read,notes:write") end
  local key = "mp_" .. keys.base64url(keys.random(32))
  local line, why = line_of(name, key, args)
  if not line then return stderr.misuse(why, "as in --expires 90d") end
  if not args.file then
    io.stdout:write("the key, shown only this once:\n  ", key, "\nthe line for the file of auth.keys:\n  ", line, "\n")
    return 0
  end
  local ok
  ok, why = files.write(args.file, line .. "\n", "a")
  if not ok then return stderr.wrong(why, "the folder of the file must exist, and you must be able to write there") end
  print(key)
  return 0
end

local function pair(args)
  local path = args[2]
  if not path or args[3] then return stderr.misuse("key pair takes one file, for the private key", "as in moonpool key pair signing.pem > public.pem") end
  local key, why = keys.generate(args.alg or "ES256")
  if not key then return stderr.misuse("'" .. args.alg .. "' is not an algorithm: " .. why, "ES256 and EdDSA are good choices") end
  local made, wrong, is_there = wire.create(path, key:pem(true), true)
  if is_there then return stderr.wrong(path .. " exists already", "choose another name, or remove it") end
  if not made then return stderr.wrong(path .. ": " .. wrong) end
  io.stdout:write(key:pem())
  return 0
end

-- The password: typed twice at a terminal, else the first line of the input; or nil and why.
local function read(name)
  if not wire.is_terminal(0) then return io.read "l" end
  local word = wire.read_secret("password of " .. name .. ": ")
  if word and wire.read_secret "again: " ~= word then return nil, "the two passwords differ" end
  return word
end

-- The text of the file of users with the user's line; a line that the user has gives way to it. True: there was one.
local function with_line(text, name, line)
  local lines, was_there = {}, false
  for old in text:gmatch "[^\n]*\n?" do
    local is_old = old:match "^%s*(%S+)" == name
    if not is_old then lines[#lines + 1] = old elseif not was_there then lines[#lines + 1] = line .. "\n" end
    was_there = was_there or is_old
  end
  text = table.concat(lines)
  if was_there then return text, true end
  return text .. (text:find "[^\n]$" and "\n" or "") .. line .. "\n", false
end

-- Puts the line into the file: an exit code.
local function put_line(path, name, line)
  wire.keep_private()
  local file <close>, why, code = io.open(path, "rb")
  if not file and code ~= NOT_THERE then return stderr.wrong(why, "you must be able to read and write the file") end
  local text, was_there = with_line(file and file:read "a" or "", name, line)
  local ok, report = config_file.replace(path, text)
  if not ok then return stderr.wrong((report:gsub("\n$", "")), "the folder of the file must exist, and you must be able to write there") end
  if was_there then print(name .. " has a new line in place of the old one, with which all sign-ins of " .. name .. " end") end
  return 0
end

local function password(args)
  local name = args[2]
  if not name or args[3] then
    return stderr.misuse("key password takes one name", "as in moonpool key password ann --file users.txt; the password is asked for, and is no argument")
  end
  if not name:find "^[%w_.@+-]+$" or #name > 128 then return stderr.misuse("'" .. name .. "' is not a valid name for a user", "letters, digits and _.@+-") end
  local word, why = read(name)
  if not word or word == "" then return stderr.wrong(why or "there is no password") end
  if #word > MAX_BYTES or word:find "%z" or not utf8.len(word) then return stderr.wrong "the password is not UTF-8 of at most 1,024 bytes" end
  if utf8.len(word) < LEAST_CHARACTERS then return stderr.wrong "the password has fewer than 8 characters" end
  local salt = keys.random(16)
  local hash = host.digest.scrypt(word, salt, N, R, P)
  if not hash then return stderr.wrong "OpenSSL cannot hash the password" end
  local line = ("%s scrypt:%d:%d:%d:%s:%s"):format(name, N, R, P, keys.base64url(salt), keys.base64url(hash))
  local wrong = args.scopes and complaint(args.scopes)
  if wrong then return stderr.misuse(wrong, "as in --scopes notes:read,notes:write") end
  if args.scopes then line = line .. " " .. args.scopes end
  if not args.file then
    print(line)
    return 0
  end
  return put_line(args.file, name, line)
end

local kinds = { new = new, pair = pair, password = password }

local listed = "each key is a line of the file that auth.keys names: an owner, a hash, scopes"
local removed = "remove the key's line from the file that auth.keys names; the gateway reads the file again by itself"
local elsewhere = { list = listed, ls = listed, show = listed, revoke = removed, remove = removed, delete = removed, rm = removed }

return function(args)
  local run = kinds[args[1]]
  if run then return run(args) end
  return stderr.misuse(args[1] and "key has no action '" .. args[1] .. "'" or "key takes 'new', 'password' or 'pair'",
    elsewhere[args[1]] or suggest.hint(args[1] or "", kinds) or "as in moonpool key new ci --scopes notes:read")
end
