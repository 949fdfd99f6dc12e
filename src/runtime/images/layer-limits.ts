import { FairleadError } from '../../lib/errors.ts';

/** Bounds of an image's contents: its author is not trusted. */
export interface LayerLimits {
  /** Unpacked bytes of all layers, with the archives' own. */
  readonly bytes: number;
  /** Files, folders, links and devices of all layers. */
  readonly entries: number;
  /** Bytes of a path or a link's target. */
  readonly pathBytes: number;
  /** Folders that contain each other. */
  readonly depth: number;
  /** Seconds of unpacking. */
  readonly seconds: number;
}

export const LAYER_LIMITS: LayerLimits = {
  bytes: 32 * 2 ** 30,
  entries: 1_000_000,
  // The kernel's PATH_MAX, with the final zero.
  pathBytes: 4095,
  depth: 256,
  seconds: 900,
};

/** Layers of an image; Docker builds at most 127. */
export const MAX_LAYERS = 256;

/** Unpacks the layers of an image on top of each other. */
export interface LayersTask {
  readonly kind: 'unpack';
  /** An empty folder. */
  readonly root: string;
  /** The image's name, for errors. */
  readonly image: string;
  readonly layers: readonly { readonly file: string; readonly diffId: string }[];
  readonly limits: LayerLimits;
}

/** What may still be unpacked. */
export interface LayerBudget {
  /** The bytes counted. */
  readonly bytes: number;
  /** Counts an entry and checks its names. Throws "image-too-large". */
  entry(path: string, linkPath: string): void;
  /** Counts a folder that no entry names, but paths of entries. Throws "image-too-large". */
  folder(): void;
  /** Checks how deep a folder is, after links. Throws "image-too-large". */
  depth(folders: number): void;
  /** Counts bytes of an archive. Throws "image-too-large". */
  add(bytes: number): void;
}

export function createLayerBudget(limits: LayerLimits): LayerBudget {
  let bytes = 0;
  let { entries } = limits;
  const count = () => {
    if (--entries < 0) throw tooLarge(`more than ${limits.entries} entries`);
  };
  const checkDepth = (folders: number) => {
    if (folders > limits.depth) throw tooLarge(`folders nested more than ${limits.depth} deep`);
  };
  return {
    get bytes() {
      return bytes;
    },
    entry(path, linkPath) {
      count();
      for (const name of [path, linkPath]) {
        if (Buffer.byteLength(name) > limits.pathBytes)
          throw tooLarge(`a path of more than ${limits.pathBytes} bytes`);
      }
      let folders = 0;
      for (let at = path.indexOf('/'); at >= 0; at = path.indexOf('/', at + 1)) folders++;
      checkDepth(folders);
    },
    folder: count,
    depth: checkDepth,
    add(size) {
      bytes += size;
      if (bytes > limits.bytes) throw tooLarge(`more than ${limits.bytes} bytes`);
    },
  };
}

/** Counts the bytes of an unpacked archive. */
export async function* counted(
  source: AsyncIterable<Uint8Array>,
  budget: LayerBudget,
): AsyncGenerator<Uint8Array> {
  for await (const chunk of source) {
    budget.add(chunk.length);
    yield chunk;
  }
}

const tooLarge = (what: string): FairleadError =>
  new FairleadError(`the image has ${what}`, { op: 'unpack image', code: 'image-too-large' });
