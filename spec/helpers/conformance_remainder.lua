-- The checks of the official conformance suite that fail through a second gateway, although they pass without it: what is expected, and why.
-- `./dev conformance auto|modern|legacy` compares each run with this list. A check that is not here may not fail, and a check that is here must fail.
--   modes    how the outer gateway calls the inner one: auto, modern, legacy
--   why      the reason
--   least    for each mode and run, the least number of checks that pass

local EVERY <const> = { "auto", "modern", "legacy" }
local LEGACY <const> = { "legacy" }

local remainder = {
  -- What the gateway does not do for upstreams yet. A line leaves the list with the work that makes it untrue.
  { modes = LEGACY, why = "a question of an older upstream is not put to a client of 2026-07-28, which must repeat its request for it",
    "input-required-result-basic-elicitation, sep-2322-elicitation-incomplete", "input-required-result-basic-list-roots, sep-2322-list-roots-incomplete",
    "input-required-result-basic-sampling, sep-2322-sampling-incomplete",
    "input-required-result-capability-check, sep-2322-respect-client-capabilities",
    "input-required-result-missing-input-response, sep-2322-missing-response-rerequests", "input-required-result-multi-round, sep-2322-multi-round-r1",
    "input-required-result-multiple-input-requests, sep-2322-multiple-inputs-incomplete",
    "input-required-result-non-tool-request, sep-2322-non-tool-incomplete", "input-required-result-request-state, sep-2322-request-state-incomplete",
    "input-required-result-result-type, sep-2322-result-type-included", "input-required-result-tampered-state, sep-2322-reject-tampered-state",
    "input-required-result-validate-input, sep-2322-validate-input-responses", "input-required-result-validate-input, sep-2322-error-on-protocol-error" },
  { modes = LEGACY, why = "the gateway does not take up the stream of a call that an upstream closes", "server-sse-polling, server-sse-disconnect-resume" },
  { modes = EVERY, why = "tasks of an upstream are not served: its tools are called without them",
    "tasks-capability-negotiation, tasks-extension-advertised", "tasks-capability-negotiation, sep-2663-tasks-methods-non-declaring",
    "tasks-capability-negotiation, tasks-per-request-meta-opt-in", "tasks-dispatch-and-envelope, tasks-server-directed-creation-no-hint",
    "tasks-dispatch-and-envelope, tasks-result-type-complete-on-non-task-responses",
    "tasks-dispatch-and-envelope, sep-2663-durable-create-strong-consistency",
    "tasks-dispatch-and-envelope, sep-2663-tasks-get-invalid-task-id-32602", "tasks-lifecycle, sep-2663-result-type-task-on-create",
    "tasks-lifecycle, sep-2663-tasks-get-status-working", "tasks-lifecycle, sep-2663-tasks-get-status-completed",
    "tasks-lifecycle, sep-2663-tool-error-uses-completed-status", "tasks-lifecycle, sep-2663-tasks-get-status-failed",
    "tasks-lifecycle, sep-2663-cancel-ack-empty-result", "tasks-lifecycle, tasks-cancel-terminal-idempotent-ack",
    "tasks-mrtr-composition, sep-2663-mrtr-synchronous-before-task-creation", "tasks-mrtr-input, sep-2663-tasks-get-status-input-required",
    "tasks-mrtr-input, tasks-mrtr-tasks-update-resumes", "tasks-mrtr-input, tasks-mrtr-partial-fulfillment",
    "tasks-request-headers, sep-2663-routing-headers-accepted-on-tasks-get",
    "tasks-request-headers, sep-2663-server-rejects-mismatched-mcp-name-on-tasks-get",
    "tasks-request-state-removal, tasks-request-state-removal-setup", "tasks-wire-fields, tasks-wire-field-renames",
    "tasks-wire-fields, tasks-no-early-ttl-expiry", "tasks-wire-fields, tasks-no-related-task-meta-on-inlined-result" },
  { modes = LEGACY, why = "tasks of an upstream are not served: a tool that runs only as a task answers as its own revision says",
    "tasks-required-task-error, sep-2663-server-returns-missing-capability-when-required" },

  -- What stays: the revisions cannot say it to each other.
  { modes = LEGACY, why = "an older upstream has no error for a capability that one request lacks: its tool decides",
    "server-stateless, sep-2575-server-rejects-undeclared-capability", "server-stateless, sep-2575-missing-capability-http-400" },
  { modes = { "auto", "modern" }, why = "answers go to an upstream only with the requestState of the round that asked for them",
    "input-required-result-ignore-extra-params, sep-2322-ignore-unexpected-params" },
  { modes = EVERY, why = "the stream between client and gateway stays open while the upstream closes its own: there is nothing to reconnect for",
    "server-sse-polling, server-sse-retry-field" },
}

remainder.least = {
  auto = { ["2025-03-26"] = 3, ["2025-06-18"] = 56, ["2025-11-25"] = 82, ["2026-07-28"] = 151, ["2026-07-28 requirements"] = 170 },
  modern = { ["2025-03-26"] = 3, ["2025-06-18"] = 56, ["2025-11-25"] = 82, ["2026-07-28"] = 151, ["2026-07-28 requirements"] = 170 },
  legacy = { ["2025-03-26"] = 3, ["2025-06-18"] = 56, ["2025-11-25"] = 82, ["2026-07-28"] = 129, ["2026-07-28 requirements"] = 146 },
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
