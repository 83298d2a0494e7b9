-- The checks of the official conformance suite that fail through a second gateway, although they pass without it: what
-- is expected, and why.
-- `./dev conformance auto|modern|legacy` compares each run with this list. A check that is not here may not fail, and a
-- check that is here must fail.
--   modes    how the outer gateway calls the inner one: auto, modern, legacy; nodes: several nodes behind a balancer, where
--            a check that is here fails or not as the balancer chooses
--   why      the reason
--   least    for each mode and run, the least number of checks that pass

local EVERY <const> = { "auto", "modern", "legacy" }
local LEGACY <const>, NODES <const> = { "legacy" }, { "nodes" }

local remainder = {
  -- What the gateway does not do for upstreams yet. Remove a line when the gateway does it.
  { modes = LEGACY, why = "a tool that runs only as a task at an older upstream is a call that waits for clients without tasks",
    "tasks-required-task-error, sep-2663-server-returns-missing-capability-when-required" },

  -- What cannot change: the two revisions have no way to express it to each other.
  { modes = LEGACY, why = "an older upstream has no error for a capability that one request lacks: its tool decides",
    "server-stateless, sep-2575-server-rejects-undeclared-capability", "server-stateless, sep-2575-missing-capability-http-400" },
  { modes = LEGACY, why = "a question of an older upstream has no key, so the gateway gives it one, and its tool asks one question after the other",
    "input-required-result-basic-elicitation, sep-2322-elicitation-incomplete",
    "input-required-result-multiple-input-requests, sep-2322-multiple-inputs-incomplete",
    "tasks-mrtr-input, tasks-mrtr-partial-fulfillment" },
  { modes = EVERY, why = "answers go to an upstream only with the requestState of the round that asked for them",
    "input-required-result-ignore-extra-params, sep-2322-ignore-unexpected-params" },
  { modes = EVERY, why = "the stream between client and gateway stays open while the upstream closes its own: there is nothing to reconnect for",
    "server-sse-polling, server-sse-retry-field" },
  { modes = NODES, why = "what a script enables and disables holds on its node alone: a stream at another node has nothing to say",
    "server-stateless, sep-2575-server-sends-prompts-list-changed-on-subscription",
    "server-stateless, sep-2575-server-sends-tools-list-changed-on-subscription" },
}

remainder.least = {
  nodes = { ["2025-03-26"] = 3, ["2025-06-18"] = 56, ["2025-11-25"] = 84, ["2026-07-28"] = 150, ["2026-07-28 requirements"] = 194 },
  auto = { ["2025-03-26"] = 3, ["2025-06-18"] = 56, ["2025-11-25"] = 82, ["2026-07-28"] = 151, ["2026-07-28 requirements"] = 195 },
  modern = { ["2025-03-26"] = 3, ["2025-06-18"] = 56, ["2025-11-25"] = 82, ["2026-07-28"] = 151, ["2026-07-28 requirements"] = 195 },
  legacy = { ["2025-03-26"] = 3, ["2025-06-18"] = 56, ["2025-11-25"] = 82, ["2026-07-28"] = 145, ["2026-07-28 requirements"] = 186 },
}

--- The reasons of a mode: "scenario, check" -> why.
function remainder.of(mode)
  local reasons = {}
  for _, group in ipairs(remainder) do
    for _, of in ipairs(group.modes) do
      if of == mode then
        for _, check in ipairs(group) do reasons[check] = group.why end
      end
    end
  end
  return reasons
end

return remainder
