/** The parts of API objects from which names are derived; compatible with objects from the API server. */

export interface ObjectMeta {
  readonly name?: string | undefined;
  readonly namespace?: string | undefined;
  readonly labels?: Readonly<Record<string, string>> | undefined;
  readonly annotations?: Readonly<Record<string, string>> | undefined;
}

export interface ServiceObject {
  readonly metadata?: ObjectMeta | undefined;
  readonly spec?:
    | {
        readonly type?: string | undefined;
        readonly clusterIP?: string | undefined;
        readonly clusterIPs?: readonly string[] | undefined;
        readonly externalName?: string | undefined;
        readonly publishNotReadyAddresses?: boolean | undefined;
        readonly ports?:
          | readonly {
              readonly name?: string | undefined;
              readonly protocol?: string | undefined;
              readonly port: number;
            }[]
          | undefined;
      }
    | undefined;
}

export interface SliceEndpoint {
  readonly addresses: readonly string[];
  readonly hostname?: string | null | undefined;
  readonly conditions?: { readonly ready?: boolean | null | undefined } | undefined;
}

export interface EndpointSliceObject {
  readonly metadata?: ObjectMeta | undefined;
  readonly addressType?: string | undefined;
  readonly endpoints?: readonly SliceEndpoint[] | null | undefined;
  readonly ports?:
    | readonly {
        readonly name?: string | null | undefined;
        readonly protocol?: string | null | undefined;
        readonly port?: number | null | undefined;
      }[]
    | null
    | undefined;
}
