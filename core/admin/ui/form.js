// A form made from a JSON Schema: texts, numbers, choices, yes and no, lists of such, and objects one level deep. What is more than that is a field of JSON.
import { el, setText } from "./kit.js";

let last = 0;
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

// The wrong field of a form: `message` names it.
export class Wrong extends Error {}

// The values that a schema allows if it lists them, with their titles; nothing if it does not.
function choices(schema) {
  if (Array.isArray(schema.enum)) return schema.enum.map((value, i) => ({ value, title: schema.enumNames?.[i] ?? String(value) }));
  const either = schema.oneOf ?? schema.anyOf;
  if (Array.isArray(either) && either.length > 0 && either.every((one) => isObject(one) && "const" in one)) return either.map((one) => ({ value: one.const, title: one.title ?? String(one.const) }));
  return "const" in schema ? [{ value: schema.const, title: String(schema.const) }] : undefined;
}

const typeOf = (schema) => Array.isArray(schema.type) ? schema.type.find((one) => one !== "null") : schema.type;

function parse(text, type, name) {
  if (type === "string") return text;
  const number = Number(text.trim());
  if (text.trim() === "" || !Number.isFinite(number)) throw new Wrong(`${name} is no number`);
  if (type === "integer" && !Number.isInteger(number)) throw new Wrong(`${name} is no whole number`);
  return number;
}

// How a schema is shown: { control, read(): a value or undefined, fill(value) }.
function controlOf(schema, name, isRequired) {
  const options = choices(schema), type = typeOf(schema);
  if (options || type === "boolean") {
    const all = options ?? [{ value: true, title: "yes" }, { value: false, title: "no" }];
    const control = el("select", {}, ...isRequired ? [] : [el("option", { value: "" }, "not set")], ...all.map((one, i) => el("option", { value: String(i) }, one.title)));
    return {
      control, read: () => control.value === "" ? undefined : all[Number(control.value)].value,
      fill: (value) => { control.value = String(all.findIndex((one) => one.value === value)).replace("-1", isRequired ? "0" : ""); },
    };
  }
  if (type === "string" || type === "integer" || type === "number") {
    const control = el("input", { type: schema.format === "password" || schema.writeOnly ? "password" : "text", autocomplete: "off", spellcheck: "false", inputmode: type === "string" ? undefined : "decimal" });
    return {
      control, read: () => control.value === "" ? undefined : parse(control.value, type, name),
      fill: (value) => { control.value = value === undefined ? "" : String(value); },
    };
  }
  const item = isObject(schema.items) ? typeOf(schema.items) : undefined;
  if (type === "array" && ["string", "integer", "number"].includes(item)) {
    const control = el("textarea", { rows: "3", spellcheck: "false" });
    return {
      control, note: "One a line.",
      read: () => control.value === "" ? (isRequired ? [] : undefined) : control.value.split("\n").filter((line) => line !== "").map((line) => parse(line, item, name)),
      fill: (value) => { control.value = Array.isArray(value) ? value.join("\n") : ""; },
    };
  }
  const control = el("textarea", { rows: "3", spellcheck: "false" });
  return {
    control, note: "As JSON.",
    read() {
      if (control.value.trim() === "") return undefined;
      try {
        return JSON.parse(control.value);
      } catch {
        throw new Wrong(`${name} is no JSON`);
      }
    },
    fill: (value) => { control.value = value === undefined ? "" : JSON.stringify(value); },
  };
}

function fieldOf(schema, name, isRequired, path) {
  if (isObject(schema) && isObject(schema.properties) && path.length === 0) {
    const inner = fieldsOf(schema, [name]);
    const node = el("fieldset", {}, el("legend", {}, (schema.title ?? name) + (isRequired ? " (required)" : "")), ...inner.nodes);
    return {
      nodes: [node], fill: (value) => inner.fill(isObject(value) ? value : {}),
      read() {
        const value = inner.read();
        return isRequired || Object.keys(value).length > 0 ? value : undefined;
      },
    };
  }
  const full = [...path, name].join("."), shown = isObject(schema) ? schema : {}, { control, read, fill, note } = controlOf(shown, full, isRequired);
  const id = `field${++last}`, text = [shown.description, note].filter(Boolean).join(" ");
  control.id = id;
  control.name = full;
  if (isRequired) control.setAttribute("aria-required", "true");
  const about = text === "" ? [] : [el("span", { class: "soft", id: `${id}about` }, text)];
  if (about.length > 0) control.setAttribute("aria-describedby", `${id}about`);
  fill(shown.default);
  const node = el("div", { class: "field" }, el("label", { for: id }, (shown.title ?? name) + (isRequired ? " (required)" : "")), control, ...about);
  return {
    nodes: [node], fill,
    read() {
      control.removeAttribute("aria-invalid");
      try {
        const value = read();
        if (value === undefined && isRequired) throw new Wrong(`${full} is required`);
        return value;
      } catch (error) {
        control.setAttribute("aria-invalid", "true");
        if (error instanceof Wrong) error.control ??= control;
        throw error;
      }
    },
  };
}

function fieldsOf(schema, path) {
  const required = Array.isArray(schema.required) ? schema.required : [];
  const fields = Object.entries(isObject(schema.properties) ? schema.properties : {}).map(([name, of]) => [name, fieldOf(of, name, required.includes(name), path)]);
  return {
    nodes: fields.flatMap(([, field]) => field.nodes),
    read() {
      const made = {};
      for (const [name, field] of fields) {
        const value = field.read();
        if (value !== undefined) made[name] = value;
      }
      return made;
    },
    fill(value) {
      for (const [name, field] of fields) field.fill(value[name]);
    },
  };
}

// The fields of a schema of an object, and their value as JSON beside them; what was edited last counts. read() gives the object, or throws Wrong.
export function schemaForm(schema, title) {
  const fields = fieldsOf(isObject(schema) ? schema : {}, []), raw = el("textarea", { rows: "8", spellcheck: "false", class: "raw", "aria-label": `${title} as JSON` });
  const none = fields.nodes.length === 0 ? [el("p", { class: "soft" }, "No arguments are described.")] : [];
  const wrong = el("p", { class: "bad" }), side = el("div", {}, ...none, ...fields.nodes);
  let isRaw = false;
  const show = (text) => setText(wrong, text);
  side.addEventListener("input", () => {
    isRaw = false;
    try {
      raw.value = JSON.stringify(fields.read(), null, 2);
      show("");
    } catch { /* is told when it is to be sent */ }
  });
  raw.addEventListener("input", () => {
    isRaw = true;
    try {
      const value = JSON.parse(raw.value);
      if (isObject(value)) fields.fill(value);
      show("");
    } catch { /* the same */ }
  });
  try {
    raw.value = JSON.stringify(fields.read(), null, 2);
  } catch {
    raw.value = "{}";
  }
  for (const control of side.querySelectorAll("[aria-invalid]")) control.removeAttribute("aria-invalid");
  return {
    node: el("div", { class: "wide" }, el("div", { class: "sides" }, side, el("details", { open: "" }, el("summary", {}, `${title} as JSON`), raw)), wrong),
    read() {
      try {
        show("");
        if (!isRaw) return fields.read();
        let value;
        try {
          value = JSON.parse(raw.value);
        } catch (error) {
          throw new Wrong(`The JSON is not valid: ${error.message}`);
        }
        if (!isObject(value)) throw new Wrong("The JSON must be an object");
        return value;
      } catch (error) {
        show(`${error.message}.`);
        (error.control ?? raw).focus();
        throw error;
      }
    },
  };
}
