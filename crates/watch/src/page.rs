//! The page: one document with all that it needs in it. Its stylesheet begins with that of the lab's pages, and its charts
//! are made of the same parts.

use std::sync::OnceLock;

const SHARED_STYLE: &str = include_str!("../../lab/assets/report.css");
const UPLOT: &str = include_str!("../../lab/assets/uplot/uPlot.iife.min.js");
const PARTS: &str = include_str!("../../lab/assets/parts.js");
const UPLOT_STYLE: &str = include_str!("../../lab/assets/uplot/uPlot.min.css");
const UPLOT_LICENCE: &str = include_str!("../../lab/assets/uplot/LICENSE");
const PAGE: &str = include_str!("../assets/page.html");
const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");

/// All of it.
pub(crate) fn html() -> &'static str {
    static HTML: OnceLock<String> = OnceLock::new();
    HTML.get_or_init(|| {
        let style = [UPLOT_STYLE, SHARED_STYLE, STYLE].join("\n");
        let script = format!("/*\n{UPLOT_LICENCE}\n*/\n{UPLOT}\n{PARTS}\n{SCRIPT}");
        PAGE.replacen("/*style*/", &style, 1).replacen("/*script*/", &script, 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = html();
        for asset in [UPLOT, PARTS, SCRIPT, UPLOT_LICENCE] {
            let text = asset.to_lowercase();
            assert!(!text.contains("</script") && !text.contains("<!--"));
        }
        for asset in [STYLE, SHARED_STYLE, UPLOT_STYLE] {
            assert!(!asset.contains('<') && !asset.contains("url(") && !asset.contains("@import"));
        }
        let own = [PAGE, STYLE, PARTS, SCRIPT].concat();
        assert!(!own.contains("http://") && !own.contains("https://") && !own.contains("innerHTML"));
        assert!(page.contains("new uPlot(") && page.ends_with("</html>\n"));
    }
}
