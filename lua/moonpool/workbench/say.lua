-- How the workbench speaks to people: results to stdout, the rest to stderr.

local say = {}

--- A line to stderr.
function say.note(text) io.stderr:write(text, "\n") end

--- What is wrong, and what to do about it. Gives the exit code, 1 unless another is given.
function say.wrong(what, hint, code)
  io.stderr:write("moonpool: ", what, "\n", hint and "  hint: " .. hint .. "\n" or "")
  return code or 1
end

--- Bad usage. Gives its exit code.
function say.misuse(what, hint) return say.wrong(what, hint, 2) end

return say
