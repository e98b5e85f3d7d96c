// Starts the viewer on this service's own document. A call that changes something is signed, so only reads can be tried.
window.addEventListener("load", () => {
  window.SwaggerUIBundle({
    url: "v1/openapi.json",
    dom_id: "#viewer",
    deepLinking: true,
    docExpansion: "list",
    defaultModelsExpandDepth: 0,
    supportedSubmitMethods: ["get", "head"],
    validatorUrl: null,
  });
});
