import type { Cluster } from './cluster.ts';

/** The path of Node.js in a pod, and on a node. */
const nodeAt = (place: string) => (place.includes('/') ? process.execPath : '/opt/fairlead/node');

/** One query: "lookup web" is getaddrinfo for both families, "A web.shop" and the like ask for records. */
export type Question = string;
/** The results as text: addresses or records, sorted, or the error's code. */
export type Answers = Readonly<Record<Question, string>>;

const ASK = `
const dns = require('node:dns').promises;
const text = (record) => typeof record === 'string' ? record : record.address ?? [record.name, record.port, record.priority, record.weight].join(' ');
const ask = ([how, name]) => how === 'lookup' ? dns.lookup(name, { all: true }) : how === 'PTR' ? dns.reverse(name) : dns.resolve(name, how);
Promise.all(JSON.parse(process.argv[1]).map(async (question) => {
  try { return [question, [await ask(question.split(' '))].flat().map(text).sort().join(' ')]; }
  catch (error) { return [question, error.code]; }
})).then((all) => console.log(JSON.stringify(Object.fromEntries(all))));
`;

/** Sends all queries concurrently from a pod or a node ("node/node-1"), by its resolv.conf. */
export async function askNames(
  cluster: Cluster,
  place: string,
  questions: readonly Question[],
): Promise<Answers> {
  const words = ['exec', place, '--', nodeAt(place), '-e', ASK, JSON.stringify(questions)];
  const { out, error } = await cluster.fairlead(...words);
  if (out === '') throw new Error(`names from ${place}: ${error}`);
  return JSON.parse(out) as Answers;
}

/**
 * Works like musl's resolver: A and AAAA are sent from one socket to every name server at once, and the
 * first answer to each counts.
 */
const MUSL = `
const fs = require('node:fs');
const servers = [...fs.readFileSync('/etc/resolv.conf', 'utf8').matchAll(/^nameserver (\\S+)/gm)].map((found) => found[1]);
const socket = require('node:dgram').createSocket({ type: 'udp6', ipv6Only: false });
const name = process.argv[1];
const wanted = new Map();
const query = (id, type) => Buffer.concat([
  Buffer.from([id >> 8, id & 255, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
  ...name.split('.').map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)])),
  Buffer.from([0, 0, type, 0, 1]),
]);
let round = 0, failed = 0;
const next = () => {
  if (++round > 100) { console.log(JSON.stringify({ failed })); process.exit(0); }
  wanted.clear();
  for (const [id, type] of [[2 * round, 1], [2 * round + 1, 28]]) {
    wanted.set(id, true);
    for (const server of servers) socket.send(query(id, type), 53, server.includes(':') ? server : '::ffff:' + server);
  }
  const late = setTimeout(() => { failed++; next(); }, 2500);
  wanted.late = late;
};
socket.on('message', (bytes) => {
  if (!wanted.delete(bytes.readUInt16BE(0)) || wanted.size > 0) return;
  if ((bytes[3] & 15) !== 0) failed++;
  clearTimeout(wanted.late);
  next();
});
socket.bind(0, next);
`;

/**
 * Looks up a full name a hundred times as musl does. Returns how many times one of the two answers was
 * missing.
 */
export async function askAsMusl(cluster: Cluster, pod: string, name: string): Promise<number> {
  const { out, error } = await cluster.fairlead('exec', pod, '--', nodeAt(pod), '-e', MUSL, name);
  if (out === '') throw new Error(`names from ${pod}: ${error}`);
  return (JSON.parse(out) as { failed: number }).failed;
}
