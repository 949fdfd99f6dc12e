import { Agent } from 'node:https';
import { startApi } from '../../src/apiserver/testing/api.ts';
import { type ApiClient, DEFAULT_ACCOUNT, type Oracle, rawSender, sender } from './oracle.ts';

/**
 * Starts the embedded server in this process and connects over HTTPS with an administrator's certificate.
 */
export async function startOurServer(): Promise<Oracle> {
  const api = startApi({ mountTokens: true });
  const [port = 0] = await api.server.listen([{ host: '127.0.0.1', port: 0 }]);
  const identity = api.authority.issue({
    commonName: 'admin',
    organizations: ['system:masters'],
    names: [],
    usage: 'client',
  });
  const agent = new Agent({ keepAlive: true, maxSockets: 8, rejectUnauthorized: false, ...identity });
  const send = sender(agent, port);
  await send('POST', '/api/v1/namespaces/default/serviceaccounts', DEFAULT_ACCOUNT);
  return {
    send,
    sendRaw: rawSender(agent, port),
    async stop() {
      agent.destroy();
      await api.server.close();
    },
  };
}

/** The embedded server, called without a network. */
export interface InProcess {
  readonly send: ApiClient;
  stop(): Promise<void>;
}

/** Starts the embedded server and calls it as the user that an administrator's credential names. */
export async function startInProcess(): Promise<InProcess> {
  const api = startApi({ mountTokens: true });
  const user = { 'impersonate-user': 'admin', 'impersonate-group': 'system:masters' };
  const send: ApiClient = async (method, path, body, contentType = 'application/json') => {
    const answer = await api.request(method, path, body, { ...user, 'content-type': contentType });
    return { status: answer.status, body: answer.body === '' ? null : answer.body };
  };
  await send('POST', '/api/v1/namespaces/default/serviceaccounts', DEFAULT_ACCOUNT);
  return { send, stop: () => api.server.close() };
}
