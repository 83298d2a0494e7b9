-- Messages of the command line to stderr. Commands print their results to stdout.

local suggest = require "moonpool.runtime.suggest"

local stderr = {}

--- Prints a line to stderr.
function stderr.note(text) io.stderr:write(text, "\n") end

--- Prints an error and its hint, and returns the exit code, 1 by default.
function stderr.wrong(what, hint, code)
  io.stderr:write("moonpool: ", what, "\n", hint and "  hint: " .. hint .. "\n" or "")
  return code or 1
end

--- Prints an error about the command line, and returns the exit code for it.
function stderr.misuse(what, hint) return stderr.wrong(what, hint, 2) end

--- Prints an error if `name` is none of `names`, the upstreams of a gateway, and returns the exit code; nil if it is
--- one.
function stderr.unknown_upstream(name, names)
  for _, known in ipairs(names) do
    if known == name then return nil end
  end
  return stderr.wrong("there is no upstream '" .. name .. "'",
    suggest.hint(name, names) or names[1] and "upstreams: " .. table.concat(names, ", ") or "the configuration has none")
end

--- The error, and its hint, of a command that has reached nothing at the admin listener's `address`: `reason` is that
--- of the connection.
function stderr.unreached(address, reason)
  return "no gateway answers at " .. address .. ": " .. reason, "is it running? `moonpool run` starts it; --admin names another address"
end

--- The error, and its hint, of a command whose token the admin listener at `address` refuses, or that has none.
function stderr.no_token(address, token)
  if token then
    return "the gateway at " .. address .. " does not know this token", "it is that of MOONPOOL_ADMIN_TOKEN, else of admin.tokens; a gateway that " ..
      "makes its own has a new one after a restart: leave the variable out, as root or as the user of the gateway"
  end
  return "the gateway at " .. address .. " needs a token",
    "run the command on its machine, as root or as the user of the gateway; or put a token of its admin.tokens into the variable MOONPOOL_ADMIN_TOKEN"
end

return stderr