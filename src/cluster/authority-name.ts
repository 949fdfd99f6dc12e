/** Returns the name of the cluster in certificates and kubeconfigs. */
export const authorityName = ({ name }: { readonly name: string }) => `fairlead-${name}`;
