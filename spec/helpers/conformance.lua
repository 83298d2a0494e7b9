-- The official conformance suite against examples/conformance: the list of runs, the least number of checks that each
-- must pass, and the result of a run. A warning counts as a failure. `./dev conformance` and a spec use this list.
local cjson = require "cjson.safe"
local cluster = require "spec.helpers.cluster"
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local node = require "spec.helpers.node"

local conformance = {}

local SUITE = node.folder .. "/node_modules/@modelcontextprotocol/conformance/dist/index.js"
local PATIENCE = 120 -- seconds for a run

local function all_at(revision, passes)
  return { name = revision, options = { "--suite", "all", "--spec-version", revision }, passes = passes }
end

-- `passes` is the least number of checks that pass with a correct server: if an answer is a stream instead of JSON, the
-- suite makes one more check.
-- The requirements of a revision include the tasks extension.
conformance.runs = {
  all_at("2025-03-26", 3),
  all_at("2025-06-18", 56),
  all_at("2025-11-25", 84),
  all_at("2026-07-28", 152),
  { name = "2026-07-28 requirements", options = { "--requirements", "2026-07-28" }, passes = 196 },
}

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

--- The gateway that all runs share: the example as it is, on free ports; with MOONPOOL_NODES=3 three nodes behind a
--- balancer.
function conformance.start()
  local folder = "examples/conformance"
  local text = read(folder .. "/moonpool.yaml"):gsub("127%.0%.0%.1:%d+", "127.0.0.1:0")
  local config, count = text:gsub("path: scripts", "path: " .. assert(uv.fs_realpath(folder .. "/scripts")))
  assert(count == 1, "the example does not say where its scripts are")
  return cluster.front { config = config }
end

--- A gateway without scripts before the gateway `inner`, whose things it serves under their own names. `revision`: how
--- it calls `inner` (auto, modern, legacy). The suite leaves many questions without an answer, which wait.
function conformance.start_before(inner, revision)
  local constants = { upstream_pending = 1000, upstream_pending_per_principal = 1000, upstream_questions_per_principal = 1000 }
  return gateway.start { constants = constants, config = { upstreams = { inner = { url = inner.url, prefix = "", revision = revision or "auto" } } } }
end

-- Each scenario's name and checks, from <folder>/server-<scenario>-<time>/checks.json.
local function scenarios_in(folder)
  local list, entries = {}, uv.fs_scandir(folder)
  while entries do
    local name = uv.fs_scandir_next(entries)
    if not name then break end
    local checks = cjson.decode(read(folder .. "/" .. name .. "/checks.json"))
    list[#list + 1] = { name = name:match "^server%-(.+)%-%d+%-%d+%-%d+T" or name, checks = checks or {} }
  end
  table.sort(list, function(a, b) return a.name < b.name end)
  return list
end

local bad = { FAILURE = "failed", WARNING = "warnings" }

--- Runs one of `conformance.runs`. Returns { passed =, failed =, warnings =, seconds =, complaints = { text, … },
--- expected = { name = why } }; without complaints the run has passed. `remainder` (optional): { reasons = name -> why,
--- least = name of a run -> checks that pass at least }; a check that fails with a reason is in `expected`.
function conformance.run(g, run, remainder)
  local folder = g.dir .. "/" .. run.name:gsub(" ", "-")
  local args = { SUITE, "server", "--url", g.url, "-o", folder }
  table.move(run.options, 1, #run.options, #args + 1, args)
  local started = uv.hrtime()
  local code, out, err = gateway.run_program(node.path, args, { seconds = PATIENCE, cwd = g.dir })
  local reasons, least = remainder and remainder.reasons or {}, remainder and remainder.least[run.name] or run.passes
  local report = { passed = 0, failed = 0, warnings = 0, complaints = {}, expected = {}, seconds = (uv.hrtime() - started) / 1e9 }

  local undecided = {} -- checks with neither success nor failure
  local function complain(...) table.insert(report.complaints, string.format(...)) end

  for _, scenario in ipairs(scenarios_in(folder)) do
    for _, check in ipairs(scenario.checks) do
      local kind = bad[check.status]
      local name = ("%s, %s"):format(scenario.name, check.id)
      if check.status == "SUCCESS" then
        report.passed = report.passed + 1
      elseif kind then
        report[kind] = report[kind] + 1
      end
      if kind and reasons[name] then
        report.expected[name] = reasons[name]
      elseif kind then
        complain("%s: %s: %s", name, check.status:lower(), check.errorMessage or check.description or "no message")
      elseif check.status ~= "SUCCESS" then
        undecided[#undecided + 1] = ("\n%s: %s: %s"):format(name, check.status:lower(), check.description or "no message")
      end
    end
  end
  if code ~= 0 and report.failed == 0 then
    complain("the suite ended with code %d\n%s\n%s", code, out, err)
  end
  if report.passed < least then
    complain("%d checks passed, %d are wanted; neither passed nor failed:%s", report.passed, least,
      #undecided > 0 and table.concat(undecided) or " none")
  end
  return report
end

return conformance
