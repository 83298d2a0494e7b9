-- JSONTestSuite: 318 texts that a parser must take (y_), must refuse (n_), or may judge (i_). The archive is outside
-- the repository.
local root = debug.getinfo(1, "S").source:match "^@(.*)spec/helpers/[^/]*$"

local suite = { archive = (root == "" and "./" or root) .. "../shared/vectors/json-test-suite.tar.xz" }

local function run(command)
  local pipe <close> = assert(io.popen(command))
  return pipe:read "a"
end

-- The texts by name, or nil if the archive does not exist.
function suite.read()
  local file = io.open(suite.archive, "rb")
  if not file then
    return nil
  end
  file:close()
  local dir = run("mktemp -d"):gsub("\n", "")
  run(("tar -xJf '%s' -C '%s'"):format(suite.archive, dir))
  local texts = {}
  for path in run(("find '%s' -name '*.json'"):format(dir)):gmatch "[^\n]+" do
    local text <close> = assert(io.open(path, "rb"))
    texts[path:match "([^/]*)%.json$"] = text:read "a"
  end
  run(("rm -r '%s'"):format(dir))
  return texts
end

return suite
