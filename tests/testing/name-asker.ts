/** How long the last answers may take. A busy machine starts an agent in more than the 5 s that a resolver waits. */
const ANSWER_MS = 20_000;

/**
 * A program for Node.js with the arguments NAME SECONDS: queries the first name server of resolv.conf 200 times a second,
 * from one port and from a new port alternately, and prints what was not answered as expected (Asked). Without SECONDS, it
 * prints "begun" after the first answer, and continues until standard input ends.
 */
export const ASK_NAME = `
const dgram = require('node:dgram');
const [name, seconds] = process.argv.slice(1);
const server = /^nameserver (\\S+)/m.exec(require('node:fs').readFileSync('/etc/resolv.conf', 'utf8'))[1];
const query = (id) => Buffer.concat([
  Buffer.from([id >> 8, id & 255, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
  ...name.split('.').map((label) => Buffer.concat([Buffer.from([label.length]), Buffer.from(label)])),
  Buffer.from([0, 0, 1, 0, 1]),
]);
let sent = 0, slowest = 0, begun = false;
const waiting = new Map(), rcodes = {}, failures = {};
const open = () => {
  const socket = dgram.createSocket('udp4');
  socket.on('message', (bytes) => {
    const id = bytes.readUInt16BE(0), since = waiting.get(id);
    if (since === undefined) return;
    waiting.delete(id);
    if (!seconds && !begun) console.log('begun');
    begun = true;
    slowest = Math.max(slowest, Date.now() - since);
    rcodes[bytes[3] & 15] = (rcodes[bytes[3] & 15] ?? 0) + 1;
    if (socket !== constant) socket.close();
  });
  socket.on('error', (error) => failures[error.code] = (failures[error.code] ?? 0) + 1);
  return socket;
};
const constant = open();
const timer = setInterval(() => {
  waiting.set(sent, Date.now());
  const socket = sent % 2 ? constant : open();
  socket.send(query(sent++), 53, server);
}, 5);
const finish = () => {
  clearInterval(timer);
  const ended = Date.now();
  setInterval(() => {
    if (waiting.size > 0 && Date.now() - ended < ${ANSWER_MS}) return;
    console.log(JSON.stringify({ sent, lost: waiting.size, rcodes, failures, slowest }));
    process.exit(0);
  }, 50);
};
if (seconds) setTimeout(finish, seconds * 1000);
else process.stdin.resume().on('end', finish);
`;

/** The result: `lost`: queries without an answer; `rcodes`: code → answers; `slowest` in milliseconds. */
export interface Asked {
  readonly sent: number;
  readonly lost: number;
  readonly rcodes: Readonly<Record<string, number>>;
  readonly failures: Readonly<Record<string, number>>;
  readonly slowest: number;
}
