-- The JSON Schema test suite: every required case of the dialects 2020-12 and draft-07.
local library, why = require "spec.helpers.library"()

local root = debug.getinfo(1, "S").source:match "^@(.*)spec/unit/[^/]*$"
local archive = (root == "" and "./" or root) .. "../shared/vectors/json-schema-test-suite.tar.xz"

local function run(command)
  local pipe <close> = assert(io.popen(command))
  return pipe:read "a"
end

-- Values by path below the archive's root, or nil if there is no archive.
local function read_suite(json)
  local file = io.open(archive, "rb")
  if not file then return nil end
  file:close()
  local dir = run "mktemp -d":gsub("\n", "")
  run(("tar -xJf '%s' -C '%s'"):format(archive, dir))
  local values = {}
  for path in run(("find '%s' -name '*.json'"):format(dir)):gmatch "[^\n]+" do
    local text <close> = assert(io.open(path, "rb"))
    values[path:sub(#dir + 2)] = assert(json.decode(text:read "a"))
  end
  run(("rm -r '%s'"):format(dir))
  return values
end

describe("the JSON Schema test suite", function()
  if not library then return pending("needs the C modules: " .. why) end
  local values = read_suite(library.json)
  if not values then return pending("is not here: " .. archive .. " holds it") end

  local remotes, files = {}, {}
  for path, value in pairs(values) do
    local remote = path:match "^remotes/(.*)$"
    if remote then
      remotes["http://localhost:1234/" .. remote] = value
    else
      files[#files + 1] = path
    end
  end
  table.sort(files)

  local function wrong_cases(group, dialect, wrong)
    local check, reason = library.schema.compile(group.schema, { default_dialect = dialect, resources = remotes })
    for _, case in ipairs(group.tests) do
      local valid = check and check(case.data) == true
      if not check or valid ~= case.valid then
        wrong[#wrong + 1] = group.description .. ": " .. case.description .. (reason and " (" .. reason .. ")" or "")
      end
    end
    return #group.tests
  end

  for folder, dialect in pairs { ["draft2020-12"] = "2020-12", draft7 = "draft-07" } do
    local count = 0
    describe(dialect, function()
      for _, path in ipairs(files) do
        local name = path:match("^tests/" .. folder:gsub("%-", "%%-") .. "/(.*)%.json$")
        if name then
          it("is kept in " .. name, function()
            local wrong = {}
            for _, group in ipairs(values[path]) do count = count + wrong_cases(group, dialect, wrong) end
            assert.same({}, wrong)
          end)
        end
      end

      it("was all there", function()
        assert.equal(({ ["2020-12"] = 1299, ["draft-07"] = 927 })[dialect], count)
      end)
    end)
  end
end)
