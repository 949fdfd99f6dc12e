import { join } from 'node:path';
import { readOptionalFolder } from '../../kernel/optional-file.ts';
import { requestError } from './request-path.ts';
import type { ServedPod } from './served-pod.ts';

/** The content of /logs/ at a path: a folder's entries ("pods/"), or a file of this machine. */
export type LogContent = { readonly entries: readonly string[] } | { readonly file: string };

/**
 * Finds the content at a path below a node's /logs/: the containers' logs as in upstream's /var/log,
 * pods/NAMESPACE_NAME_UID/CONTAINER/RUN.log. Other logs of the machine do not belong to the cluster. Throws "NotFound".
 */
export function findLogContent(pods: readonly ServedPod[], parts: readonly string[]): LogContent {
  const [top, podName, containerName, fileName, ...rest] = parts.filter((part) => part !== '');
  const none = () => requestError('NotFound', `there is no /logs/${parts.join('/')} on this node`);
  if (rest.length > 0 || (top !== undefined && top !== 'pods')) throw none();
  if (top === undefined) return { entries: ['pods/'] };
  const named = new Map<string, ServedPod>(
    pods.map((pod) => {
      const { namespace, name, uid } = pod.pod.metadata ?? {};
      return [`${namespace}_${name}_${uid}`, pod];
    }),
  );
  if (podName === undefined) return { entries: [...named.keys()].sort().map((name) => `${name}/`) };
  const pod = named.get(podName);
  if (!pod) throw none();
  if (containerName === undefined) return { entries: pod.containerNames.map((name) => `${name}/`) };
  const container = pod.container(containerName);
  if (!container) throw none();
  const files = readOptionalFolder(container.logFolder).sort();
  if (fileName === undefined) return { entries: files };
  if (!files.includes(fileName)) throw none();
  return { file: join(container.logFolder, fileName) };
}

/** Renders a folder's entries as a page of links, as Go's http.FileServer does. */
export function renderFolder(entries: readonly string[]): string {
  const escaped = (text: string) => text.replace(/[&<>"]/g, (letter) => `&#${letter.charCodeAt(0)};`);
  const links = entries.map((entry) => `<a href="${encodeURI(entry)}">${escaped(entry)}</a>\n`);
  return `<!doctype html>\n<meta name="viewport" content="width=device-width">\n<pre>\n${links.join('')}</pre>\n`;
}
