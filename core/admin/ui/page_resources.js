// Resources and templates: the list, and one of them, which can be read.
import { browse, single } from "./browse.js";
import { Wrong } from "./form.js";
import { runner } from "./run.js";

function build(at, kit) {
  const { el, rest } = kit;
  const keyOf = (r) => r.uri ?? r.uri_template;
  if (rest === "") return browse(at, kit, { kind: "resources", keyOf, empty: "No resources. A Lua file in the folder resources of the scripts makes one: moonpool new resource." });
  return single(at, kit, {
    kind: "resources", name: rest, path: `/api/resource?uri=${encodeURIComponent(rest)}`,
    extra(body, resource) {
      const uri = el("input", { name: "uri", value: keyOf(resource), spellcheck: "false", autocomplete: "off", "aria-required": "true" }), wrong = el("p", { class: "bad" });
      body.append(el("h2", {}, "Read"));
      runner(body, kit, {
        method: "resources/read", verb: "Read", fields: [el("label", { class: "wide" }, resource.uri_template ? "URI: put values in place of what is in braces" : "URI", uri), wrong],
        params() {
          const isTemplate = uri.value.includes("{");
          wrong.textContent = isTemplate ? "Put a value in place of what is in braces." : "";
          if (!isTemplate) return { uri: uri.value };
          uri.focus();
          throw new Wrong("uri");
        },
      });
    },
  });
}

export default { title: "Resources", every: 5000, build };
