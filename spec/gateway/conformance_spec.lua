-- The official conformance suite against examples/conformance. A warning counts as a failure here. Not run yet, because
-- nothing serves them: resources-subscribe, -unsubscribe, server-sse-polling, tasks.
local cjson = require "cjson.safe"
local uv = require "luv"
local gateway = require "spec.helpers.gateway"
local node = require "spec.helpers.node"

local scenarios = {
  ["2025-06-18"] = { "server-initialize", "server-session-lifecycle", "ping", "tools-list", "tools-call-simple-text", "tools-call-error",
    "tools-call-sampling", "tools-call-elicitation" },
  ["2025-11-25"] = {
    "server-initialize", "server-session-lifecycle", "ping", "logging-set-level", "tools-list", "tools-call-simple-text",
    "tools-call-image", "tools-call-audio", "tools-call-embedded-resource", "tools-call-mixed-content", "tools-call-error",
    "tools-call-with-logging", "tools-call-with-progress", "json-schema-2020-12", "server-sse-multiple-streams",
    "dns-rebinding-protection", "tools-call-sampling", "tools-call-elicitation", "elicitation-sep1034-defaults",
    "elicitation-sep1330-enums",
  },
  ["2026-07-28"] = {
    "server-stateless", "http-header-validation", "http-custom-header-server-validation", "tools-list", "tools-call-simple-text",
    "tools-call-error", "tools-call-with-progress", "json-schema-2020-12", "server-sse-multiple-streams", "dns-rebinding-protection",
    "sep-2164-resource-not-found", "caching", "input-required-result-basic-elicitation", "input-required-result-basic-sampling",
    "input-required-result-basic-list-roots", "input-required-result-request-state",
    "input-required-result-multiple-input-requests", "input-required-result-multi-round",
    "input-required-result-missing-input-response", "input-required-result-non-tool-request",
    "input-required-result-result-type", "input-required-result-unsupported-methods", "input-required-result-tampered-state",
    "input-required-result-capability-check", "input-required-result-ignore-extra-params", "input-required-result-validate-input",
  },
}

local features = {
  "resources-list", "resources-read-text", "resources-read-binary", "resources-templates-read", "prompts-list", "prompts-get-simple",
  "prompts-get-with-args", "prompts-get-embedded-resource", "prompts-get-with-image", "completion-complete",
}
for _, list in pairs(scenarios) do table.move(features, 1, #features, #list + 1, list) end

local function read(path)
  local file <close> = assert(io.open(path, "rb"))
  return file:read "a"
end

-- Every check of one run, from <dir>/<scenario>-<time>/checks.json.
local function checks_in(dir)
  local entries = assert(uv.fs_scandir(dir))
  local name = assert(uv.fs_scandir_next(entries), "the suite wrote no checks")
  return assert(cjson.decode(read(dir .. "/" .. name .. "/checks.json")))
end

local function run(g, scenario, revision)
  local dir = g.dir .. "/" .. scenario .. "-" .. revision
  local _, out, err = gateway.run_program(node.path, {
    node.folder .. "/node_modules/@modelcontextprotocol/conformance/dist/index.js", "server", "--url", g.url,
    "--scenario", scenario, "--spec-version", revision, "-o", dir,
  }, { seconds = 60, cwd = g.dir })
  local ok, checks = pcall(checks_in, dir)
  return ok and checks or error(("%s\n%s\n%s"):format(checks, out, err), 2)
end

describe("the conformance suite", function()
  local g

  lazy_setup(function()
    g = gateway.start { scripts_path = "examples/conformance/scripts" }
  end)

  lazy_teardown(function()
    local house <close> = g -- luacheck: ignore 211
    g:wait_status(function(status) -- some scenarios leave without DELETE: their sessions stay until they are idle
      local left = status.gauges
      return left.streams_open == 0 and left.requests_in_flight == 0 and left.tasks == 0 and left.ops == 0 and left.queue_bytes == 0
    end)
  end)

  for _, revision in ipairs { "2025-06-18", "2025-11-25", "2026-07-28" } do
    for _, scenario in ipairs(scenarios[revision]) do
      it(("at %s passes %s"):format(revision, scenario), function()
        local bad, passed = {}, 0
        for _, check in ipairs(run(g, scenario, revision)) do
          if check.status == "FAILURE" or check.status == "WARNING" then
            bad[#bad + 1] = ("%s %s: %s %s"):format(check.status, check.id, check.description or "", check.errorMessage or "")
          elseif check.status == "SUCCESS" then
            passed = passed + 1
          end
        end
        assert.equal("", table.concat(bad, "\n"))
        assert(passed > 0, "no check passed")
      end)
    end
  end
end)
