// Prompts: the list, and one of them with a form that gets it.
import { browse, single } from "./browse.js";
import { completeArguments } from "./complete.js";
import { schemaForm } from "./form.js";
import { runner } from "./run.js";

function build(at, kit) {
  const { el, rest } = kit;
  if (rest === "") return browse(at, kit, { kind: "prompts", keyOf: (p) => p.name, empty: "No prompts. A Lua file in the folder prompts of the scripts makes one: moonpool new prompt." });
  return single(at, kit, {
    kind: "prompts", name: rest, path: `/api/prompt/${encodeURIComponent(rest)}`,
    extra(body, prompt) {
      const given = prompt.arguments ?? [];
      const properties = Object.fromEntries(given.map((one) => [one.name, { type: "string", title: one.title, description: one.description }]));
      const form = schemaForm({ properties, required: given.filter((one) => one.required).map((one) => one.name) }, "Arguments");
      body.append(el("h2", {}, "Get"));
      const { settings } = runner(body, kit, { method: "prompts/get", verb: "Get", fields: [form.node], params: () => ({ name: prompt.name, arguments: form.read() }) });
      completeArguments(form.node, prompt.name, given.map((one) => one.name), settings, kit.onLeave);
    },
  });
}

export default { title: "Prompts", every: 5000, build };
