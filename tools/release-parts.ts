// The pure parts of tools/release.mjs.

/** A package in a file of the release. */
export interface Component {
  readonly name: string;
  readonly version: string;
  readonly license?: string;
  /** Digests of the downloaded package, in hexadecimal digits. */
  readonly sha512?: string;
  readonly sha256?: string;
  /** "pkg:npm/ws@8.23.0" */
  readonly purl: string;
}

interface Lock {
  readonly packages: Readonly<
    Record<
      string,
      {
        readonly version?: string;
        readonly license?: string;
        readonly integrity?: string;
        readonly dev?: boolean;
        readonly os?: readonly string[];
      }
    >
  >;
}

/** A file of a release, and what it contains. */
interface Content {
  readonly file: string;
  readonly sha256: string;
  readonly components: readonly Component[];
}

/**
 * Returns the npm packages that the program is bundled from or needs at run time, by name and version, from a lock file.
 */
export function npmComponents(lock: Lock): Component[] {
  return Object.entries(lock.packages)
    .filter(([path, { dev, os }]) => path !== '' && !dev && (os === undefined || os.includes('linux')))
    .map(([path, { version = '', license, integrity }]) => {
      const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
      const sha512 = /^sha512-(.*)$/.exec(integrity ?? '')?.[1];
      return {
        name,
        version,
        ...(license === undefined ? {} : { license }),
        ...(sha512 === undefined ? {} : { sha512: Buffer.from(sha512, 'base64').toString('hex') }),
        purl: `pkg:npm/${name.replace('@', '%40')}@${version}`,
      };
    })
    .sort((a, b) => compare(a.name, b.name) || compare(a.version, b.version));
}

/**
 * Returns a Debian package of an image as a component, from its file's name: "libc6_2.36-9+deb12u13_amd64.deb".
 */
export function debianComponent({ file, sha256 }: Pick<Content, 'file' | 'sha256'>): Component {
  const [, name = '', escaped = '', arch = ''] = /^([^_]+)_([^_]+)_([^_]+)\.deb$/.exec(file) ?? [];
  if (name === '') throw new Error(`${file} is not the name of a Debian package`);
  const version = decodeURIComponent(escaped);
  return {
    name,
    version,
    sha256,
    purl: `pkg:deb/debian/${name}@${encodeURIComponent(version)}?arch=${arch}`,
  };
}

/**
 * Returns the SBOM of a release as an SPDX 2.3 document. `created` is seconds since 1970, `contents` the release's files with
 * the components that each contains.
 */
export function spdxDocument({
  version,
  created,
  contents,
}: {
  readonly version: string;
  readonly created: number;
  readonly contents: readonly Content[];
}) {
  const components = new Map(
    contents.flatMap((one) => one.components.map((component) => [component.purl, component])),
  );
  const sorted = [...components.values()].sort((a, b) => compare(a.purl, b.purl));
  return {
    spdxVersion: 'SPDX-2.3',
    dataLicense: 'CC0-1.0',
    SPDXID: 'SPDXRef-DOCUMENT',
    name: `fairlead-${version}`,
    // A name, not an address: it is unique by the digests of what it describes.
    documentNamespace: `urn:fairlead:sbom:${version}:${contents.map(({ sha256 }) => sha256.slice(0, 16)).join('-')}`,
    creationInfo: {
      created: new Date(created * 1000).toISOString().replace('.000Z', 'Z'),
      creators: [`Tool: fairlead-release-${version}`],
    },
    packages: [
      ...contents.map(({ file, sha256 }) => ({
        SPDXID: idOf(file),
        name: file,
        versionInfo: version,
        packageFileName: file,
        downloadLocation: 'NOASSERTION',
        filesAnalyzed: false,
        licenseConcluded: 'NOASSERTION',
        licenseDeclared: 'Apache-2.0',
        copyrightText: 'NOASSERTION',
        checksums: [{ algorithm: 'SHA256', checksumValue: sha256 }],
      })),
      ...sorted.map((component) => ({
        SPDXID: idOf(component.purl),
        name: component.name,
        versionInfo: component.version,
        downloadLocation: 'NOASSERTION',
        filesAnalyzed: false,
        licenseConcluded: 'NOASSERTION',
        licenseDeclared: component.license ?? 'NOASSERTION',
        copyrightText: 'NOASSERTION',
        ...(component.sha512 === undefined && component.sha256 === undefined
          ? {}
          : {
              checksums: [
                component.sha512 === undefined
                  ? { algorithm: 'SHA256', checksumValue: component.sha256 }
                  : { algorithm: 'SHA512', checksumValue: component.sha512 },
              ],
            }),
        externalRefs: [
          { referenceCategory: 'PACKAGE-MANAGER', referenceType: 'purl', referenceLocator: component.purl },
        ],
      })),
    ],
    relationships: contents.flatMap(({ file, components: own }) => [
      { spdxElementId: 'SPDXRef-DOCUMENT', relationshipType: 'DESCRIBES', relatedSpdxElement: idOf(file) },
      ...own.map(({ purl }) => ({
        spdxElementId: idOf(file),
        relationshipType: 'CONTAINS',
        relatedSpdxElement: idOf(purl),
      })),
    ]),
  };
}

/**
 * Compares the digests of two builds, file → SHA-256, and returns a line for each difference.
 */
export function differences(
  first: ReadonlyMap<string, string>,
  second: ReadonlyMap<string, string>,
): string[] {
  return [...new Set([...first.keys(), ...second.keys()])].sort().flatMap((file) => {
    const [a, b] = [first.get(file), second.get(file)];
    if (a === b) return [];
    return [`${file}: ${a ?? 'absent'} in the first build, ${b ?? 'absent'} in the second`];
  });
}

/** Returns the contents of SHA256SUMS, as sha256sum reads it. */
export const checksumText = (digests: ReadonlyMap<string, string>): string =>
  [...digests]
    .sort(([a], [b]) => compare(a, b))
    .map(([file, digest]) => `${digest}  ${file}\n`)
    .join('');

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);
/** SPDX identifiers have letters, digits, dots and hyphens. */
const idOf = (text: string): string => `SPDXRef-${text.replace(/[^A-Za-z0-9.-]+/g, '-')}`;
