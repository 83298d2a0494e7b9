-- moonpool password: a line of the file of users, for sign_in.passwords.

local files = require "moonpool.workbench.format.files"
local host = require "moonpool.host"
local keys = require "moonpool.keys"
local stderr = require "moonpool.workbench.format.stderr"
local wire = require "moonpool.wire"

local N <const>, R <const>, P <const> = 32768, 8, 3
local MAX_BYTES <const>, LEAST_CHARACTERS <const> = 1024, 8

-- The password: typed twice at a terminal, else the first line of the input; or nil and why.
local function read(name)
  if not wire.is_terminal(0) then return io.read "l" end
  local word = wire.read_secret("password of " .. name .. ": ")
  if word and wire.read_secret "again: " ~= word then return nil, "the two passwords differ" end
  return word
end

return function(args)
  local name = args[1]
  if not name or args[2] then
    return stderr.misuse("password takes one name", "as in moonpool password ann --file users.txt; the password is asked for, and is no argument")
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
  if args.scopes then line = line .. " " .. args.scopes end
  if not args.file then
    print(line)
    return 0
  end
  wire.keep_private()
  local ok, wrong = files.write(args.file, line .. "\n", "a")
  return ok and 0 or stderr.wrong(wrong, "the folder of the file must exist, and you must be able to write there")
end
