/** Style sheets that tools/build.mjs bundles as text. */
declare module '*.css' {
  const text: string;
  export default text;
}
