// A client in a control group and network namespace of its own; run by `startClient`, spoken to over IPC.
import { createSocket } from 'node:dgram';
import { connect } from 'node:net';
import type { Asked, Question } from './client.ts';

process.on('message', ({ id, question }: { id: number; question: Question }) => {
  void answer(question).then((asked) => process.send?.({ id, asked }));
});
process.on('disconnect', () => process.exit(0));
process.send?.('ready');

function answer(question: Question): Promise<Asked> {
  return question.how === 'tcp' ? askTcp(question) : askUdp(question);
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
