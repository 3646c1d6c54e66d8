// The theme: that of the system, dark or light. Loaded before the page is drawn, so that nothing flashes.
(() => {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    let wanted = "system";
    try {
      wanted = localStorage.getItem("theme") || "system";
    } catch {
      // Without storage the theme is that of the system.
    }
    const dark = wanted === "dark" || (wanted === "system" && system.matches);
    document.documentElement.dataset.theme = dark ? "dark" : "light";
    return wanted;
  };
  const next = { system: "dark", dark: "light", light: "system" };
  window.theme = {
    apply,
    turn() {
      const wanted = next[apply()];
      try {
        localStorage.setItem("theme", wanted);
      } catch {
        document.documentElement.dataset.theme = wanted === "dark" ? "dark" : "light";
        return wanted;
      }
      return apply();
    },
  };
  system.addEventListener("change", apply);
  apply();
})();
