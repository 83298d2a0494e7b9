// Nodes: the processes of the cluster, by their records, as this gateway knows them. Shown where there is a cluster.

// The value that most of a list have.
const usual = (values) => values.toSorted((a, b) => values.filter((v) => v === b).length - values.filter((v) => v === a).length)[0];

function build(at, { change, duration, el, json, list, setText, table }) {
  const most = {};
  const other = (n, what) => n[what] === most[what] ? n[what] : { text: `${n[what]} differs`, class: "bad" };
  const rows = table("Nodes", [
    ["Node", (n) => n.own ? `${n.node}, this one` : n.node], ["State", (n) => ({ text: n.unreached ? `${n.state}, not reached` : n.state, class: n.unreached || n.state === "stale" ? "bad" : "" })],
    ["Sessions", (n) => n.sessions], ["Renewed", (n) => `${duration(n.age_ms)} ago`], ["Address", (n) => n.address], ["Version", (n) => other(n, "version")],
    ["Scripts", (n) => other(n, "scripts"), "A hash of the scripts that it serves"], ["Config", (n) => other(n, "config"), "A hash of its moonpool.yaml, before ${…} is put in"],
  ], (n) => String(n.number), { title: "Forget", label: (n) => `Forget the node ${n.node}`, can: (n) => n.state === "stale",
    asks: (n) => [`Forget the node ${n.node}?`, "Its record is removed now, not after a minute: its sessions are unknown at once.", "Forget it"],
    run: (n) => change("/api/cluster/forget", { method: "POST", body: { node: n.node } }) });
  const state = el("p"), drift = el("p", { class: "soft" });
  const part = list(at, "No node has a record. Gateways with cluster.listen write one.");
  at.append(state, drift, rows.search, rows.region);
  return () => part.load(async () => {
    const { cluster } = await json("/status"), nodes = cluster?.nodes ?? [];
    nodes.sort((a, b) => a.node.localeCompare(b.node) || a.number - b.number);
    for (const what of ["version", "scripts", "config"]) most[what] = usual(nodes.map((n) => n[what]));
    const away = cluster?.away_ms === undefined ? "Redis answers." : `Redis has not answered for ${duration(cluster.away_ms)}.`;
    setText(state, cluster ? `Cluster ${cluster.name}. ${cluster.joined ? "This gateway has joined." : `This gateway has not joined${cluster.why ? `: ${cluster.why}` : ""}.`} ${nodes.length > 0 || cluster.away_ms ? away : ""}` : "This gateway has no cluster.");
    state.className = cluster?.away_ms === undefined && (cluster?.joined ?? true) ? "" : "bad";
    setText(drift, nodes.some((n) => n.scripts !== most.scripts || n.config !== most.config) ? "Nodes differ in scripts or configuration, as during a deploy." : "");
    rows.update(nodes);
    return nodes.length;
  });
}

export default { title: "Nodes", every: 2000, build };
