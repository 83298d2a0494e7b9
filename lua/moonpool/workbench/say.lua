-- Messages of the command line to stderr. Commands print their results to stdout.

local say = {}

--- Prints a line to stderr.
function say.note(text) io.stderr:write(text, "\n") end

--- Prints an error and its hint, and returns the exit code, 1 by default.
function say.wrong(what, hint, code)
  io.stderr:write("moonpool: ", what, "\n", hint and "  hint: " .. hint .. "\n" or "")
  return code or 1
end

--- Prints an error about the command line, and returns the exit code for it.
function say.misuse(what, hint) return say.wrong(what, hint, 2) end

--- The error, and its hint, of a command that has no token for the admin listener at `address`.
function say.no_token(address)
  return "the gateway at " .. address .. " needs a token",
    "run the command on its machine, as root or as the user of the gateway; or put a token of its admin.tokens into the variable MOONPOOL_ADMIN_TOKEN"
end

return say
