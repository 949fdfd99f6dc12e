// A client in a separate control group and network namespace; run by `startClient`, controlled over IPC.
import { createSocket, type Socket } from 'node:dgram';
import { connect } from 'node:net';
import type { Asked, Question } from './client.ts';

process.on('message', ({ id, question }: { id: number; question: Question }) => {
  void answer(question).then((asked) => process.send?.({ id, asked }));
});
process.on('disconnect', () => process.exit(0));
process.send?.('ready');

function answer(question: Question): Promise<Asked> {
  switch (question.how) {
    case 'tcp':
      return askTcp(question);
    case 'tcp-storm':
      return storm(question);
    case 'tcp-echo':
      return echo(question);
    case 'udp-repeat':
      return repeat(question);
    default:
      return question.kept === undefined ? askUdp(question) : askKept(question, question.kept);
  }
}

/** Opens connections at a constant rate, regardless of how long they take. */
async function storm(question: Question): Promise<Asked> {
  const { times = 100, perSecond = 100 } = question;
  const started = performance.now();
  const asked: Promise<Asked>[] = [];
  while (asked.length < times) {
    const due = Math.min(times, Math.floor(((performance.now() - started) * perSecond) / 1000) + 1);
    while (asked.length < due) asked.push(askTcp(question));
    await new Promise((resolve) => setTimeout(resolve, 1));
  }
  const answers: Record<string, number> = {};
  const took: number[] = [];
  for (const { answer, tookMs } of await Promise.all(asked)) {
    answers[answer] = (answers[answer] ?? 0) + 1;
    took.push(tookMs);
  }
  return { answer: 'done', tookMs: performance.now() - started, answers, times: took.sort((a, b) => a - b) };
}

/** Opens one connection that is used for a while. */
function echo({ address, port, times = 1, timeoutMs }: Question): Promise<Asked> {
  return new Promise((resolve) => {
    const socket = connect(port, address);
    let had = 0;
    const finish = (answer: string) => {
      clearTimeout(timer);
      socket.resetAndDestroy();
      resolve({ answer, tookMs: 0 });
    };
    const timer = setTimeout(() => finish(`silence after ${had}`), timeoutMs);
    const say = () => socket.write('?');
    socket.on('connect', say);
    socket.on('data', () => {
      if (++had === times) finish('done');
      else setTimeout(say, 50);
    });
    socket.on('end', () => finish('closed'));
    socket.on('error', ({ code = 'error' }: NodeJS.ErrnoException) => finish(`${code} after ${had}`));
  });
}

/** Sends repeatedly from a connected UDP socket. */
function repeat({ address, port, times = 1, timeoutMs }: Question): Promise<Asked> {
  return new Promise((resolve) => {
    const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
    const answers: Record<string, number> = {};
    let had = 0;
    const finish = (answer: string) => {
      clearInterval(interval);
      clearTimeout(timer);
      socket.close();
      resolve({ answer, tookMs: 0, answers });
    };
    const timer = setTimeout(() => finish('silence'), timeoutMs);
    const interval = setInterval(() => socket.send('?', () => {}), 50);
    socket.on('message', (bytes) => {
      answers[bytes.toString()] = (answers[bytes.toString()] ?? 0) + 1;
      if (++had === times) finish(bytes.toString());
    });
    socket.on('error', () => {});
    socket.connect(port, address);
  });
}

function askTcp({ address, port, timeoutMs, hold }: Question): Promise<Asked> {
  return new Promise((resolve) => {
    const started = performance.now();
    const socket = connect(port, address);
    let received = '';
    let peer: string | undefined;
    let tookMs = 0;
    const finish = (text: string) => {
      clearTimeout(timer);
      if (!hold) socket.destroy();
      resolve({ answer: text, peer, tookMs });
    };
    const timer = setTimeout(() => finish('silence'), timeoutMs);
    socket.on('connect', () => {
      tookMs = performance.now() - started;
      peer = `${socket.remoteAddress} ${socket.remotePort}`;
      if (hold) finish('connected');
    });
    socket.on('data', (chunk) => {
      received += chunk;
    });
    socket.on('end', () => finish(received));
    socket.on('error', ({ code = 'error' }: NodeJS.ErrnoException) =>
      finish(code === 'ECONNREFUSED' ? 'refused' : code),
    );
  });
}

function askUdp({ how, address, port, also, timeoutMs }: Question): Promise<Asked> {
  return new Promise((resolve) => {
    const socket = createSocket(address.includes(':') ? 'udp6' : 'udp4');
    const peers: string[] = [];
    const answers: string[] = [];
    const wanted = 1 + (also?.length ?? 0);
    let done = false;
    const finish = (text: string) => {
      if (done) return;
      done = true;
      clearTimeout(timer);
      socket.close();
      resolve({ answer: text, peer: peers.join(', '), tookMs: 0 });
    };
    const timer = setTimeout(() => finish('silence'), timeoutMs);
    socket.on('message', (bytes, from) => {
      answers.push(bytes.toString());
      peers.push(`${from.address} ${from.port}`);
      if (answers.length === wanted) finish(answers.join(', '));
    });
    socket.on('error', ({ code = 'error' }: NodeJS.ErrnoException) =>
      finish(code === 'ECONNREFUSED' ? 'refused' : code),
    );
    if (how === 'udp-connected') {
      socket.connect(port, address, (error?: Error | null) => {
        if (error) finish((error as NodeJS.ErrnoException).code ?? 'error');
        else socket.send('?');
      });
      return;
    }
    socket.send('?', port, address);
    for (const [otherAddress, otherPort] of also ?? []) socket.send('?', otherPort, otherAddress);
  });
}

const keptSockets = new Map<string, Socket>();

/** Sends a datagram from a socket that stays open. */
async function askKept({ how, address, port, timeoutMs }: Question, name: string): Promise<Asked> {
  let socket = keptSockets.get(name);
  if (!socket) {
    const opened = createSocket(address.includes(':') ? 'udp6' : 'udp4');
    keptSockets.set(name, opened);
    opened.on('error', () => {});
    if (how === 'udp-connected')
      await new Promise<void>((resolve) => opened.connect(port, address, () => resolve()));
    socket = opened;
  }
  const { promise, resolve } = Promise.withResolvers<Asked>();
  const timer = setTimeout(() => resolve({ answer: 'silence', tookMs: 0 }), timeoutMs);
  socket.once('message', (bytes, from) =>
    resolve({ answer: bytes.toString(), peer: `${from.address} ${from.port}`, tookMs: 0 }),
  );
  if (how === 'udp-connected') socket.send('?');
  else socket.send('?', port, address);
  const asked = await promise;
  clearTimeout(timer);
  socket.removeAllListeners('message');
  return asked;
}
