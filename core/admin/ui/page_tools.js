// Tools: the list, and one of them with a form that runs it.
import { browse, single } from "./browse.js";
import { schemaForm } from "./form.js";
import { runner } from "./run.js";

function build(at, kit) {
  const { el, rest } = kit;
  if (rest === "") return browse(at, kit, { kind: "tools", keyOf: (t) => t.name, hasTimes: true, empty: "No tools. A Lua file in the folder tools of the scripts makes one: moonpool new tool." });
  return single(at, kit, {
    kind: "tools", name: rest, path: `/api/tool/${encodeURIComponent(rest)}`, hasTimes: true,
    extra(body, tool) {
      const form = schemaForm(tool.input, "Arguments");
      body.append(el("h2", {}, "Run"));
      runner(body, kit, { method: "tools/call", fields: [form.node], params: () => ({ name: tool.name, arguments: form.read() }), destructive: tool.destructive });
    },
  });
}

export default { title: "Tools", every: 5000, build };
