// Sign-ins: who is signed in at the gateway itself, and their end.
function build(at, { change, json, list, table, time }) {
  const when = (s) => time(new Date(s * 1000).toISOString());
  const rows = table("Sign-ins", [
    ["User", (s) => s.user], ["Client", (s) => s.name ?? s.client], ["Since", (s) => when(s.since)], ["Last token", (s) => when(s.used)],
    ["Rights", (s) => s.scopes.join(" ")], ["Sign-in", (s) => s.sign_in],
  ], (s) => s.sign_in, { title: "End", label: (s) => `End the sign-in ${s.sign_in}`, asks: (s) => [`End the sign-in ${s.sign_in}?`, "Its streams and its running calls end.", "End it"],
    run: (s) => change(`/api/sign-in/${s.sign_in}`) });
  const part = list(at, "No sign-ins.");
  at.append(rows.search, rows.region);
  return () => part.load(async () => {
    const all = [];
    for (let page = 0; page !== undefined && all.length < 500;) {
      const answer = await json(`/api/sign-ins?page=${page}`);
      all.push(...answer.sign_ins);
      page = answer.next;
    }
    rows.update(all);
    return all.length;
  });
}

export default { title: "Sign-ins", every: 5000, build };
