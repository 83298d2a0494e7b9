// Certificates: those of the listeners, their names, and when they expire.
const SOON_DAYS = 14;

function build(at, { json, list, table, time }) {
  const left = (c) => Math.floor((new Date(c.expires) - Date.now()) / 86400000);
  const rows = table("Certificates", [
    ["Listener", (c) => c.address], ["Names", (c) => c.names.join(", ")], ["Expires", (c) => time(c.expires)],
    ["Left", (c) => ({ text: left(c) < 0 ? "expired" : `${left(c)} day${left(c) === 1 ? "" : "s"}`, class: left(c) < SOON_DAYS ? "bad" : "good" })],
    ["State", (c) => ({ text: c.ok ? "serves" : "its new files are refused: see the log", class: c.ok ? "" : "bad" })],
    ["Subject", (c) => c.subject], ["Issuer", (c) => c.issuer], ["File", (c) => c.certificate], ["Client authority", (c) => c.client_ca],
    ["Serial", (c) => c.serial], ["SHA-256", (c) => c.fingerprint],
  ], (c) => c.address);
  at.append(rows.region);
  const part = list(at, "No certificate. An address of listen, or admin, with tls: {certificate: c.pem, key: k.pem} has one.");
  return () => part.load(async () => {
    const { certificates } = await json("/api/certificates");
    rows.update(certificates);
    return certificates.length;
  });
}

export default { title: "Certificates", every: 30000, build };
