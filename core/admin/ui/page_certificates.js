// Certificates: those of the listeners, their names, and when they expire.
const SOON_DAYS = 14;

function build(at, { json, list, table, time }) {
  const left = (c) => Math.floor((new Date(c.expires) - Date.now()) / 86400000);
  const rows = table("Certificates", [
    ["Listener", (c) => c.name ? `${c.address}: ${c.name}` : c.address], ["Names", (c) => c.names.join(", ")],
    ["Expires", (c) => {
      if (!c.expires) return "";
      const { text, title } = time(c.expires), days = left(c);
      return { text: days < 0 ? `expired ${text}` : `in ${days} day${days === 1 ? "" : "s"}, ${text}`, title, class: days < SOON_DAYS ? "bad" : "good" };
    }],
    ["State", (c) => ({ text: c.ok ? "serves" : !c.expires ? "is refused, and not served: see the log" : "its new files are refused: see the log", class: c.ok ? "" : "bad" })],
    ["Subject", (c) => c.subject && `${c.subject}, issued by ${c.issuer === c.subject ? "itself" : c.issuer}`],
    ["Files", (c) => [c.certificate, c.client_ca && `authority of clients: ${c.client_ca}`].filter(Boolean).join("; ")],
    ["Serial; SHA-256", (c) => c.serial && `${c.serial}; ${c.fingerprint}`],
  ], (c) => `${c.address} ${c.name ?? ""}`);
  at.append(rows.region);
  const part = list(at, "No certificate. No address has TLS; in the configuration, tls: {certificate: c.pem, key: k.pem} gives it to an address of listen, or to admin.");
  return () => part.load(async () => {
    const { certificates } = await json("/api/certificates");
    rows.update(certificates);
    return certificates.length;
  });
}

export default { title: "Certificates", every: 30000, build };
